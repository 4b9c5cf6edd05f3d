"""scripts/runnel-convert on checkpoints of published families, and reading torch's files without torch."""

import collections
import io
import itertools
import json
import os
import pickle
import sys
import tracemalloc
import unittest
import unittest.mock
import zipfile

import support
from support import ToolTest, bundle, np

support.require("torch")

import torch

from runnel_client import convert, publish, torch_file
from runnel_client.errors import BundleError


def official():
    """Some tensors of an RWKV-7: of three types, one a view of another, one with strides out of order."""
    table = torch.randn(6, 4)
    return collections.OrderedDict(
        {
            "emb.weight": table,
            "head.weight": table,
            "blocks.0.att.r_k": torch.randn(2, 2).bfloat16(),
            "blocks.0.att.w1": torch.randn(3, 4).half().t(),
            "blocks.0.ffn.x_k": table[2:3].view(1, 1, 4),
            "blocks.0.att.empty": torch.empty(0, 4),
        }
    )


def mamba():
    return {"backbone.layers.0.mixer.A_log": torch.randn(4), "backbone.embedding.weight": torch.randn(8, 4)}


class Call:
    """Is pickled as a call of any function."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


class PublishTest(ToolTest):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        self.out = self.path("out")

    def save(self, content, name="model.pth", **options):
        torch.save(content, self.path(name), **options)
        return self.path(name)

    def convert(self, *argv):
        code, out, err = self.run_tool(convert, [*argv, "--out", self.out])
        self.assertEqual((code, err), (0, ""))
        with open(os.path.join(self.out, "config.json"), encoding="utf-8") as file:
            return out, file.read(), bundle.read_safetensors(os.path.join(self.out, "model.safetensors"))

    def refuse(self, argv, *parts):
        self.assert_refused(convert, [*argv, "--out", self.out], *parts)

    def zip_of(self, pickled, entries=(), compression=zipfile.ZIP_STORED):
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", compression) as archive:
            archive.writestr("archive/data.pkl", pickled)
            for name, data in entries:
                archive.writestr(f"archive/data/{name}", data)
        return self.write("model.pth", held.getvalue())

    def test_tensors_of_rwkv_keep_names_types_and_bits(self):
        state = official()
        _, config, tensors = self.convert(self.save(state))
        self.assertEqual(json.loads(config), {"model_type": "rwkv7", "eos_token_id": 0})
        self.assertEqual(set(tensors), set(state))
        for name, tensor in state.items():
            self.assertEqual(tensors[name].shape, tuple(tensor.shape), name)
            self.assertTrue(np.array_equal(tensors[name], tensor.float().numpy()), name)
        with open(os.path.join(self.out, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        kinds = {name: header[name]["dtype"] for name in state}
        self.assertEqual(kinds["blocks.0.att.r_k"], "BF16")
        self.assertEqual(kinds["blocks.0.att.w1"], "F16")
        self.assertEqual(kinds["emb.weight"], "F32")

    def test_parameters_are_tensors(self):
        name = "blocks.0.att.r_k"
        _, _, tensors = self.convert(self.save({name: torch.nn.Parameter(torch.ones(2, 3))}))
        self.assertTrue(np.array_equal(tensors[name], np.ones((2, 3), np.float32)))

    def test_vocabulary_and_tokenizer_are_copied(self):
        vocab = self.write("words.txt", "1 'a' 1\n")
        out, _, _ = self.convert(self.save(official()), "--vocab", vocab)
        self.assertNotIn("note", out)
        with open(os.path.join(self.out, publish.VOCABULARY), encoding="utf-8") as file:
            self.assertEqual(file.read(), "1 'a' 1\n")
        out, _, _ = self.convert(self.save(official()))
        self.assertIn("note: there is no tokenizer", out)
        self.refuse([self.save(official()), "--vocab", self.path("none.txt")], "none.txt: no such file")

    def test_a_file_that_cannot_be_copied_is_named(self):
        gone = self.path("gone.txt")
        with self.assertRaisesRegex(BundleError, f"^{gone}: No such file"):
            publish.write_all(self.out, {"words.txt": publish.copy_of(gone)})

    def test_with_a_vocabulary_no_tokenizer_is_copied_by_default(self):
        vocab, tokenizer = self.write("words.txt", "1 'a' 1\n"), self.write("tokenizer.json", "{}")
        checkpoint = self.save(official())
        self.convert(checkpoint, "--vocab", vocab)
        self.assertFalse(os.path.exists(os.path.join(self.out, "tokenizer.json")))
        self.convert(checkpoint, "--vocab", vocab, "--tokenizer", tokenizer)
        self.assertTrue(os.path.exists(os.path.join(self.out, "tokenizer.json")))
        self.refuse([checkpoint, "--vocab", vocab], "out/tokenizer.json: expected no such file", "remove it")

    def test_the_config_next_to_the_checkpoint_is_copied_unchanged(self):
        text = '{"ssm_cfg": {"layer": "Mamba2"}, "d_model": 4, "x": [Infinity] }'
        self.write("config.json", text)
        self.write("generation_config.json", "{}")
        path = self.save(mamba(), "pytorch_model.bin")
        _, config, tensors = self.convert(path)
        self.assertEqual(config, text)
        self.assertEqual(len(tensors), 2)
        self.assertTrue(os.path.exists(os.path.join(self.out, "generation_config.json")))
        os.rename(self.path("config.json"), self.path("other.json"))
        _, config, _ = self.convert(path, "--config", self.path("other.json"))
        self.assertEqual(config, text)

    def test_chat_templates_next_to_the_checkpoint_are_copied(self):
        names = ("tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja")
        os.mkdir(self.path("additional_chat_templates"))
        for name in names:
            self.write(name, f"of {name}")
        self.convert(self.save(official()))
        for name in names:
            with open(os.path.join(self.out, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), f"of {name}")

    def test_several_files_and_directories_are_merged(self):
        state = list(mamba().items())
        folder = "snapshot[1]"
        os.mkdir(self.path(folder))
        self.write(f"{folder}/config.json", '{"model_type": "mamba2"}')
        for index, (name, tensor) in enumerate(state):
            self.save({name: tensor}, f"{folder}/pytorch_model-{index}.bin")
        for other in ("training_args.bin", "optimizer.bin"):
            self.write(f"{folder}/{other}", "no checkpoint")
        _, _, tensors = self.convert(self.path(folder))
        self.assertEqual(set(tensors), {name for name, _ in state})
        self.save(dict(state), f"{folder}/pytorch_model-2.bin")
        with self.assertRaisesRegex(BundleError, "is in .* and in "):
            publish.Published(publish.files_of([self.path(folder)]))
        os.mkdir(self.path("empty"))
        self.refuse([self.path("empty")], "expected a file, found a directory")
        self.write("empty/config.json", "{}")
        self.refuse([self.path("empty")], "expected a .pth or pytorch_model.bin")

    def test_unsupported_checkpoints_are_refused(self):
        self.refuse([self.save({"blocks.0.att.time_decay": torch.ones(4)})], "'blocks.0.att.r_k'", "earlier versions")
        for name, family in (("time_maa_x", "rwkv6"), ("gate.weight", "rwkv5")):
            published = publish.Published([self.save({f"blocks.0.att.{name}": torch.ones(4)})])
            self.assertEqual(json.loads(publish.config_of(published, None))["model_type"], family)
        self.refuse([self.save(mamba())], "config.json", "--config")
        self.write("config.json", "{}")
        self.refuse([self.save(mamba())], "expected the model's config.json")
        for broken in ("{", "[" * 100_000):
            self.write("config.json", broken)
            self.refuse([self.save(mamba())], "config.json: expected JSON")

    def test_flags_without_effect_are_refused(self):
        self.write("config.json", '{"model_type": "mamba2"}')
        checkpoints = {"RWKV": self.save(official()), "Mamba": self.save(mamba(), "pytorch_model.bin")}
        flags = [action for action in convert.make_parser()._actions if action.dest not in ("help", *convert.PUBLISHED)]
        self.assertGreater(len(flags), 25)
        for family, checkpoint in checkpoints.items():
            for action in flags:
                flag = action.option_strings[0]
                for value in self.values_of(action):
                    self.refuse([checkpoint, flag, *value], f"{flag}: for linear transformers, found {family}, ")
        given = [checkpoint, "--name", "x", "--card-note", "A note.", "--norm-eps", "1e-5"]
        self.refuse(given, "--name and --norm-eps: for linear transformers", "has the name of its directory")
        config = self.path("config.json")
        self.refuse([checkpoints["RWKV"], "--config", config], "--config: an official RWKV has no config.json")

    def values_of(self, action):
        """Lists of arguments for a flag, with its default among them if that is a number or a choice."""
        if action.nargs == 0:
            return [[]]
        if action.choices:
            return [[choice] for choice in action.choices]
        other = ["1x1x1" if action.dest == "image" else "1"]
        return [other, [str(action.default)]] if isinstance(action.default, float) else [other]

    def test_the_card_has_the_given_notes_and_text(self):
        card = self.write("card.md", "\n## Licence\n\nApache 2.0.\n\n")
        notes = ["--card-note", "The first note. ", "--card-note", "The second."]
        self.convert(self.save(official()), *notes, "--card", card)
        with open(os.path.join(self.out, "README.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("# out\n\nThe first note.\n\nThe second.\n\nConverted from:\n\n| checkpoint "))
        self.assertTrue(text.endswith("` |\n\n## Licence\n\nApache 2.0.\n"))
        self.refuse([self.save(official()), "--card", self.path("none.md")], "--card: ", "none.md")

    def test_no_code_of_a_file_is_run(self):
        ran = self.path("ran")
        for evil in (Call(os.system, f"touch {ran}"), Call(eval, f"open({ran!r}, 'w')"), Call(os.mkdir, ran)):
            for content in (evil, {"blocks.0.att.r_k": evil}):
                for pickled in (pickle.dumps(content, 0), pickle.dumps(content, 2), pickle.dumps(content, 4)):
                    path = self.zip_of(pickled)
                    with self.assertRaisesRegex(BundleError, "nothing that tensors are made of"):
                        torch_file.TorchFile(path)
                    self.refuse([path], "tensors")
        path = self.save({"blocks.0.att.r_k": evil}, _use_new_zipfile_serialization=False)
        self.refuse([path], "tensors")
        self.assertFalse(os.path.exists(ran))

    def test_broken_files_are_refused(self):
        whole = self.save(official())
        with open(whole, "rb") as file:
            content = file.read()
        for cut in (0, 10, len(content) // 2, len(content) - 1):
            self.refuse([self.write("model.pth", content[:cut])], "model.pth")
        broken = self.write("model.pth", content[: len(content) // 2])
        reason = "model.pth: expected a file of torch.save with tensors only"
        self.refuse([broken, "--vocab", broken], f"error: {broken}: expected a file of torch.save with tensors only")
        with unittest.mock.patch.dict(sys.modules, {"torch": None}):
            self.refuse([broken], f"error: {broken}: expected a file of torch.save with tensors only")
        self.refuse([broken], "; read as RWKV or Mamba: ", reason)
        for numbers in (7, [1], {"a": 1}, {1: 2}, {"blocks.0.att.r_k": 1.5}):
            with self.assertRaises(BundleError):
                torch_file.TorchFile(self.zip_of(pickle.dumps(numbers)))
        with self.assertRaisesRegex(BundleError, "torch.ComplexFloatStorage"):
            torch_file.TorchFile(self.save({"a": torch.ones(3, dtype=torch.complex64)}))

    def test_a_file_that_breaks_while_it_is_read_leaves_nothing(self):
        path = self.save(official())
        with zipfile.ZipFile(path) as archive:
            begin = next(entry.header_offset for entry in archive.infolist() if entry.filename.endswith("/data/0"))
        with open(path, "r+b") as file:
            file.seek(begin)
            file.write(b"none")
        self.refuse([path], "expected a header of the archive, found none")

    def test_broken_files_of_the_older_form_are_refused(self):
        with open(self.save(official(), _use_new_zipfile_serialization=False), "rb") as file:
            content = file.read()
        for cut in (*range(0, 300, 7), *range(300, len(content), 101), len(content) - 1):
            with self.assertRaises(BundleError, msg=cut):
                torch_file.TorchFile(self.write("model.pth", content[:cut]))
        length = (24).to_bytes(8, "little")  # of the tensor `table`
        self.assertEqual(content.count(length), 1)
        with self.assertRaisesRegex(BundleError, "expected 24 numbers of storage"):
            torch_file.TorchFile(self.write("model.pth", content.replace(length, (25).to_bytes(8, "little"))))

    def test_types_and_forms_of_checkpoints(self):
        float64 = {name: tensor.double() for name, tensor in official().items()}
        counted = {**official(), "blocks.0.att.steps": torch.tensor(3), "blocks.0.att.mask": torch.ones(2).bool()}
        for legacy in (False, True):
            for state in (official(), float64, counted):
                out, _, tensors = self.convert(self.save(state, _use_new_zipfile_serialization=not legacy))
                self.assertEqual(set(tensors), set(official()))
                for name in tensors:
                    self.assertTrue(np.array_equal(tensors[name], state[name].float().numpy()), name)
                self.assertEqual("6 tensors are rounded from F64 to F32" in out, state is float64)
                self.assertEqual("2 tensors of integers are left out" in out, state is counted)

    def test_checkpoints_within_others_and_with_prefixes_are_found(self):
        wrappers = ("", "_orig_mod.", "module.", "_forward_module.", "model.")
        prefixes = ["".join(some) for n in (1, 2, 3) for some in itertools.permutations(wrappers, n)] + ["net.rwkv."]
        for family in (official, mamba):
            names = set(family())
            for prefix in prefixes:
                state = {prefix + name: tensor for name, tensor in family().items()}
                found = publish.Published([self.save(state)])
                self.assertEqual(set(found.place), names, prefix)
        state = official()
        compiled = {name.replace("blocks.0.", "blocks.0._orig_mod."): tensor for name, tensor in state.items()}
        adam = {
            "state": {0: {"step": 3, "exp_avg": torch.ones(2)}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.9)}],
        }
        for held in (
            *({key: state, "epoch": 3, "optimizer": adam, "loss": 0.5} for key in ("state_dict", "model", "module")),
            {"model": {"state_dict": state}},
            compiled,
            {**state, "step": 4},
        ):
            _, _, tensors = self.convert(self.save(held))
            self.assertEqual(set(tensors), set(state))

    def test_a_refusal_names_the_nearest_family(self):
        inner = {"layers.0.attn.r_k": torch.ones(4)}
        self.refuse([self.save(inner)], "it resembles a model of flash-linear-attention, whose tensors begin with")
        self.refuse(
            [self.save({"layers.3.mixer.A_log": torch.ones(4)})], "it resembles Mamba", "'layers.3.mixer.A_log'"
        )
        both = {prefix + name: tensor for prefix in ("", "ema.") for name, tensor in official().items()}
        self.refuse([self.save(both)], "expected one model, found several: their tensors begin with '', 'ema.'")
        twice = {"blocks.0.att.r_k": torch.ones(4), "_orig_mod.blocks.0.att.r_k": torch.ones(4)}
        self.refuse([self.save(twice)], "expected one tensor 'blocks.0.att.r_k', found another as '_orig_mod.")

    def test_invalid_sizes_are_refused(self):
        storage = torch_file.Storage("F32", "archive/data/0", 6)
        for offset, shape, strides in (
            (0, (7,), (1,)),
            (1, (2, 3), (3, 1)),
            (0, (2, 2), (5, 2)),
            (0, (3, 3), (0, 1)),
            (-1, (2,), (1,)),
            (0, (2,), (-1,)),
            (0, (2,), (1, 1)),
            (0, (1 << 70,), (0,)),
            (0, (0, 1 << 61), (0, 0)),
            (0, (True,), (1,)),
            (0, [2], [1]),
        ):
            with self.assertRaises(pickle.UnpicklingError):
                torch_file.rebuild_tensor(storage, offset, shape, strides)
        with self.assertRaises(pickle.UnpicklingError):
            torch_file.rebuild_tensor("archive/data/0", 0, (2,), (1,))

    def test_a_pickle_cannot_change_a_tensor_or_storage(self):
        def text(value):
            return b"X" + len(value).to_bytes(4, "little") + value.encode()

        def changed(name, value):
            return b"}" + text(name) + value + b"sb"  # sets an attribute of the object before it

        huge = b"\x8a\x07" + (1 << 50).to_bytes(7, "little")
        pid = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ"
        for storage, tensor in (
            (changed("elements", huge), b""),
            (b"", changed("shape", b"(" + huge + b"t") + changed("strides", b"(K\x00t")),
        ):
            pickled = b"\x80\x02}" + text("blocks.0.att.r_k") + b"ctorch._utils\n_rebuild_tensor_v2\n("
            pickled += pid + storage + b"K\x00(K\x04t(K\x01ttR" + tensor + b"s."
            with self.assertRaisesRegex(BundleError, "with tensors only, found"):
                torch_file.TorchFile(self.zip_of(pickled, [("0", b"\0" * 16)]))

    def test_a_pickle_takes_memory_only_for_its_bytes(self):
        index = b"\x80\x02}r" + (1 << 26).to_bytes(4, "little") + b"."  # of the memo
        array = b"\x80\x05\x96" + (1 << 30).to_bytes(8, "little") + b"."
        for pickled, reason in ((index, "expected tensors"), (array, "found: a bytearray")):
            path = self.zip_of(pickled)
            tracemalloc.start()
            try:
                with self.assertRaisesRegex(BundleError, reason):
                    torch_file.TorchFile(path)
                self.assertLess(tracemalloc.get_traced_memory()[1], 1 << 20)
            finally:
                tracemalloc.stop()

    def test_a_long_or_compressed_byte_order_is_refused(self):
        with zipfile.ZipFile(self.save({"blocks.0.att.r_k": torch.ones(4)})) as archive:
            pickled = next(archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
        for order, compression in ((b"little" + b" " * 11, zipfile.ZIP_STORED), (b"little", zipfile.ZIP_DEFLATED)):
            path = self.zip_of(pickled, [("0", b"\0" * 16)])
            with zipfile.ZipFile(path, "a", compression) as archive:
                archive.writestr("archive/byteorder", order)
            with self.assertRaisesRegex(BundleError, "expected a byteorder of at most 16 bytes, not compressed"):
                torch_file.TorchFile(path)

    def test_storages_must_have_their_stated_length(self):
        whole = self.save({"blocks.0.att.r_k": torch.ones(4)})
        with zipfile.ZipFile(whole) as archive:
            names = [name for name in archive.namelist() if name.endswith("data.pkl")]
            pickled = archive.read(names[0])
        with self.assertRaisesRegex(BundleError, "expected in the archive"):
            torch_file.TorchFile(self.zip_of(pickled))
        with self.assertRaisesRegex(BundleError, "expected 16 bytes"):
            torch_file.TorchFile(self.zip_of(pickled, [("0", b"\0" * 15)]))
        with self.assertRaisesRegex(BundleError, "not compressed"):
            torch_file.TorchFile(self.zip_of(pickled, [("0", b"\0" * 16)], zipfile.ZIP_DEFLATED))
        self.assertEqual(
            torch_file.TorchFile(self.zip_of(pickled, [("0", b"\0" * 16)])).read("blocks.0.att.r_k").sum(), 0
        )


if __name__ == "__main__":
    unittest.main()
