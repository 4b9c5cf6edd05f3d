"""training: parallel and step-by-step forms agree; runs learn, continue, and refuse wrong flags."""

import gzip
import io
import json
import lzma
import os
import tarfile
import unittest
import unittest.mock

import support
from support import Reference, ToolTest, bundle, np

support.require("torch")

import torch

import all_on_gpu
import attention
import datasets
import heads
import recipes
import train
from network import Network
from runnel_client import convert, random_bundle
from runnel_client.errors import BundleError


def quadratic(q, k, v, eps):
    q, k = attention.feature_map(q), attention.feature_map(k)
    weights = (q @ k.transpose(-1, -2)).tril()
    return weights @ v / (weights.sum(-1, keepdim=True) + eps)


def recurrent(q, k, v, eps, gate=None):
    q, k = attention.feature_map(q), attention.feature_map(k)
    kept = torch.ones_like(k[..., 0]) if gate is None else gate.sigmoid()
    new = torch.ones_like(kept) if gate is None else 1 - kept
    S = torch.zeros(*k.shape[:-2], k.shape[-1], v.shape[-1], dtype=k.dtype)
    z = torch.zeros(*k.shape[:-2], k.shape[-1], dtype=k.dtype)
    outputs = []
    for i in range(q.shape[-2]):
        added = new[..., i, None] * k[..., i, :]
        S = kept[..., i, None, None] * S + added[..., :, None] * v[..., i, None, :]
        z = kept[..., i, None] * z + added
        above = (q[..., i, :, None] * S).sum(-2)
        outputs.append(above / ((q[..., i, :] * z).sum(-1, keepdim=True) + eps))
    return torch.stack(outputs, -2)


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(length, dtype=torch.float64):
    return random(2, 3, length, 5), random(2, 3, length, 5, seed=1), random(2, 3, length, 7, seed=2)


class AttentionTest(unittest.TestCase):
    def test_chunked_quadratic_and_recurrent_agree(self):
        for length in (1, 2, 15, 16, 17, 64, 100):
            q, k, v = inputs(length)
            expected = recurrent(q, k, v, 1e-6)
            torch.testing.assert_close(quadratic(q, k, v, 1e-6), expected, rtol=1e-12, atol=1e-12)
            for chunk in (1, 3, 16, 64):
                found = attention.causal_linear_attention(q, k, v, 1e-6, chunk)
                self.assertEqual(found.dtype, torch.float64)
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    def test_a_gate_equals_step_by_step(self):
        for length in (1, 15, 16, 17, 100):
            q, k, v = inputs(length)
            gate = 6 * random(2, 3, length, seed=3)  # forgets from almost everything to almost nothing
            expected = recurrent(q, k, v, 1e-6, gate)
            for chunk in (1, 3, 16, 64):
                found = attention.causal_linear_attention(q, k, v, 1e-6, chunk, gate)
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)

    def test_gradients_of_a_gate(self):
        q, k, v = (x[:1, :2].clone().requires_grad_() for x in inputs(7))
        gate = (6 * random(1, 2, 7, seed=3)).requires_grad_()
        self.assertTrue(
            torch.autograd.gradcheck(
                lambda *x: attention.causal_linear_attention(x[0], x[1], x[2], 1e-6, 3, x[3]), (q, k, v, gate)
            )
        )

    def test_sums_are_fp32_for_any_type_of_input(self):
        q, k, v = (x.bfloat16() for x in inputs(200))
        expected = recurrent(q.double(), k.double(), v.double(), 1e-6).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = attention.causal_linear_attention(q, k, v, 1e-6)
        self.assertEqual(found.dtype, torch.float32)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_softmax_in_blocks_equals_softmax_position_by_position(self):
        for length in (1, 2, 15, 16, 17, 100):
            q, k, v = inputs(length)
            for scale in (None, 0.3):
                by = 5**-0.5 if scale is None else scale
                expected = torch.cat(
                    [
                        (by * q[..., i : i + 1, :] @ k[..., : i + 1, :].mT).softmax(-1) @ v[..., : i + 1, :]
                        for i in range(length)
                    ],
                    -2,
                )
                for block in (1, 3, 16, 128):
                    found = attention.causal_softmax_attention(q, k, v, scale, block)
                    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = attention.causal_softmax_attention(*(x.bfloat16() for x in inputs(20)))
        self.assertEqual(found.dtype, torch.float32)

    def test_small_features_keep_their_digits(self):
        x = torch.linspace(-60, 5, 300)
        expected = torch.nn.functional.elu(x.double()) + 1
        expected[x < -20] = x[x < -20].double().exp()
        torch.testing.assert_close(attention.feature_map(x).double(), expected, rtol=1e-5, atol=0)

    def test_gradients(self):
        q, k, v = (x[:1, :2].clone().requires_grad_() for x in inputs(7))
        self.assertTrue(
            torch.autograd.gradcheck(lambda q, k, v: attention.causal_linear_attention(q, k, v, 1e-6, 3), (q, k, v))
        )
        weights = random(1, 2, 7, 7)

        def gradients(form):
            return torch.autograd.grad((form(q, k, v, 1e-6) * weights).sum(), (q, k, v))

        for found in (gradients(attention.causal_linear_attention), gradients(quadratic)):
            torch.testing.assert_close(found, gradients(recurrent), rtol=1e-10, atol=1e-12)


class NetworkTest(ToolTest):
    def assert_as_the_reference(self, *flags):
        code, _, err = self.run_tool(random_bundle, ["--out", self.path("bundle"), *flags])
        self.assertEqual((code, err), (0, ""))
        with open(self.path("bundle", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        tensors = bundle.read_safetensors(self.path("bundle", "model.safetensors"))
        network = Network(config).double()
        network.load_state_dict({name: torch.from_numpy(t.copy()).double() for name, t in tensors.items()})
        values = np.random.default_rng(3).integers(config["values"], size=25)
        reference = Reference(config, tensors)
        outputs = np.stack([reference.step(value) for value in values[:-1]])
        log_probs = [reference.log_prob(row, value) for row, value in zip(outputs, values[1:])]
        with torch.no_grad():
            found = network(torch.from_numpy(values[None, :-1]))
            scored = heads.log_probs(config["model"]["head"], found, torch.from_numpy(values[None, 1:]))
        np.testing.assert_allclose(found[0].numpy(), outputs, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(scored[0].numpy(), log_probs, rtol=1e-6, atol=1e-7)

    def test_every_choice_of_the_format(self):
        self.assert_as_the_reference()
        self.assert_as_the_reference("--activation", "gelu", "--no-final-norm", "--value-size", "5")
        self.assert_as_the_reference("--endless", "--symbols", "abcde", "--combine", "add")
        self.assert_as_the_reference("--endless", "--position-kind", "none", "--values", "9")
        self.assert_as_the_reference("--endless", "--position-kind", "none", "--gate", "--text")
        self.assert_as_the_reference("--attention", "softmax", "--value-size", "5")
        self.assert_as_the_reference("--attention", "softmax", "--scale", "0.7", "--values", "9", "--length", "30")

    def test_the_recipes_build_the_networks_of_the_paper(self):
        class Data:
            image, values, begin, length, unit = {"height": 28, "width": 28, "channels": 1}, 256, {"value": 0}, 783, ""

        config = recipes.spec("m", Data, 8, 8)
        bundle.check_config(config)
        self.assertEqual(bundle.parameters(config), 6_359_070)
        self.assertEqual(set(Network(config).state_dict()), set(bundle.expected_tensors(config)))
        self.assertEqual([recipes.RECIPES[d]["paper"]["layers"] for d in ("mnist", "cifar10")], [8, 16])

    def test_an_endless_network_has_no_positions_and_forgets(self):
        class Data:
            image, values, begin, length, unit = None, 256, {"value": 10}, 60, "byte"

        config = recipes.spec("t", Data, 2, 4, endless=True)
        bundle.check_config(config)
        self.assertEqual(config["model"]["position"], {"kind": "none"})
        state = Network(config).state_dict()
        self.assertEqual(set(state), set(bundle.expected_tensors(config)))
        memory = 1 / torch.sigmoid(-state["transformer.layers.1.attention.gate.bias"])
        torch.testing.assert_close(memory, torch.tensor([2.0, 8.0, 32.0, 128.0]))


class HeadTest(unittest.TestCase):
    def test_a_mixture_sums_to_one_and_its_gradients_are_finite(self):
        head = {"kind": "mixture_of_logistics", "components": 3}
        outputs = (random(40, 9) * torch.tensor([1.0] * 6 + [3.0] * 3)).requires_grad_()
        values = torch.arange(256)
        log_probs = heads.log_probs(head, outputs[:, None].expand(-1, 256, -1), values.expand(40, -1))
        self.assertTrue((log_probs <= 1e-9).all())
        wide = outputs[:, 6:].min(-1).values > -3  # the tails' approximation is inexact for narrower ones
        torch.testing.assert_close(
            log_probs.exp().sum(-1)[wide], torch.ones(int(wide.sum())).double(), rtol=2e-3, atol=0
        )
        far = torch.tensor([[0.0, 50.0, -20.0], [0.0, -50.0, 5.0], [0.0, 0.0, -7.0]]).requires_grad_()
        for value in (0, 1, 127, 254, 255):
            loss = heads.log_probs({"kind": "mixture_of_logistics"}, far, torch.full((3,), value)).sum()
            [gradient] = torch.autograd.grad(loss, far)
            self.assertTrue(torch.isfinite(loss) and torch.isfinite(gradient).all(), value)


# --- Data ---


def idx(images):
    return b"\0\0\x08\x03" + np.array([len(images), 28, 28], ">u4").tobytes() + images.tobytes()


def archive(path, mode, files):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


class DataTest(ToolTest):
    def directory(self, name):
        os.makedirs(self.path("data", name))
        return self.path("data", name)

    def test_mnist(self):
        folder = self.directory("mnist")
        images = np.random.default_rng(0).integers(256, size=(30, 784), dtype=np.uint8)
        for part, count in (("train", 30), ("t10k", 4)):
            with gzip.open(os.path.join(folder, f"{part}-images-idx3-ubyte.gz"), "wb") as file:
                file.write(idx(images[:count]))
        data = datasets.load("mnist", self.path("data"), None)
        np.testing.assert_array_equal(data.held_out["test"].values, images[:4])
        epoch = np.concatenate([data.batch(5, step, 7).values for step in range(4)])
        self.assertEqual(len({row.tobytes() for row in epoch}), 28)
        again = datasets.load("mnist", self.path("data"), None).batch(5, 2, 7).values
        np.testing.assert_array_equal(again, epoch[14:21])
        self.assertFalse((data.batch(5, 4, 7).values == epoch[:7]).all())
        with gzip.open(os.path.join(folder, "t10k-images-idx3-ubyte.gz"), "wb") as file:
            file.write(idx(images)[:-1])
        with self.assertRaisesRegex(BundleError, "expected an idx file"):
            datasets.load("mnist", self.path("data"), None)

    def test_cifar10_training_excludes_images_measured_lossless(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("there is no PIL; on Debian: apt install python3-pil")

        folder = self.directory("cifar10")
        rng = np.random.default_rng(0)
        images = rng.integers(256, size=(12, 4, 4, 3), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
        files = {}
        for index, pixels in enumerate(images):
            content = io.BytesIO()
            Image.fromarray(pixels).save(content, "JPEG", quality=60)
            part = "train" if index < 10 else "test"
            files[f"./{part}/bird/{index:04}.jpg"] = content.getvalue()
        archive(os.path.join(folder, "CIFAR-10-images_jpg.tar.gz"), "w:gz", files)
        rows = images[[3, 7]].reshape(2, 1024, 3).transpose(0, 2, 1).reshape(2, 3072)
        with lzma.open(os.path.join(folder, "cifar10_lossless_first4000.bin.xz"), "wb") as file:
            file.write(np.pad(rows, ((0, 0), (1, 0))).tobytes())
        for _ in range(2):  # the second time from the cache
            data = datasets.load("cifar10", self.path("data"), self.path("cache"))
            np.testing.assert_array_equal(data.held_out["lossless"].values, images[[3, 7]].reshape(2, -1))
            self.assertEqual(len(data.held_out["test, from JPEG"]), 2)
            self.assertEqual(data.train.shape, (8, 3072))
            distance = np.abs(data.train[:, None].astype(int) - images.reshape(12, -1)).mean(-1)
            self.assertEqual(distance.argmin(1).tolist(), [0, 1, 2, 4, 5, 6, 8, 9])
            self.assertEqual(sum(data.begin["histogram"]), 8)

    def test_text(self):
        body = "“It’s  here,”\n   he said—\r\n\n\n\nand left.\n" * 20
        frame = "Title\n*** START OF A BOOK ***\n{}*** END OF A BOOK ***\nLicense\n"
        files = {f"{name}.txt": frame.format(body).encode() for name in ("time_machine", "other")}
        archive(os.path.join(self.directory("text"), "gutenberg-english.tar.xz"), "w:xz", files)
        data = datasets.load("text", self.path("data"), None, 50)
        [row], [counted] = data.after(70).values, data.after(70).counted
        self.assertEqual(row[1:][counted].tobytes(), b'"It\'s here,"\nhe said--\n\nand left.\n' * 20)
        self.assertEqual((row[0], int(np.argmax(counted))), (10, 70))
        held_out = data.held_out["a book held out"]
        book = b"".join(row[1:][counted].tobytes() for row, counted in zip(held_out.values, held_out.counted))
        self.assertEqual(book, b'"It\'s here,"\nhe said--\n\nand left.\n' * 20)
        self.assertTrue((held_out.values[:, 0] == 10).all())
        batch = data.batch(1, 2, 9)
        self.assertEqual(batch.values.shape, (9, 51))
        self.assertTrue((batch.values[:, 0] == 10).all() and batch.counted.all())
        np.testing.assert_array_equal(batch.values, data.batch(1, 2, 9).values)
        long = datasets.load("text", self.path("data"), None, len(data.train))
        with self.assertRaisesRegex(BundleError, f"--length: expected less than {len(data.train)}, found"):
            long.batch(1, 2, 9)

    def test_copy(self):
        data = datasets.load("copy", None, None, 31)
        batch = data.batch(1, 2, 500)
        for row, counted in zip(batch.values, batch.counted):
            size = int(np.argmin(row))
            self.assertTrue(8 <= size <= 14, size)
            np.testing.assert_array_equal(row[:size], row[size + 1 : 2 * size + 1])
            self.assertFalse(row[2 * size + 1 :].any())
            np.testing.assert_array_equal(np.flatnonzero(counted), np.arange(size, 2 * size + 1))
        self.assertEqual(set(batch.values.reshape(-1)), set(range(11)))

    def test_missing_files_are_named(self):
        for name, file in (("mnist", "train-images"), ("cifar10", "lossless"), ("text", "gutenberg")):
            with self.assertRaisesRegex(BundleError, f"--data: expected the file .*{file}"):
                datasets.load(name, self.path("none"), None)


# --- Runs ---

TINY = [
    "copy",
    "--size",
    "small",
    "--layers",
    "1",
    "--heads",
    "1",
    "--length",
    "15",
    "--batch",
    "16",
    "--device",
    "cpu",
]

SHORT = ["--minutes", "0.01", "--threads", "1"]


class RunTest(ToolTest):
    def train(self, *flags, expected=0):
        argv = [*TINY, "--work", self.path("work"), "--out", self.path("tiny"), "--threads", "1", *flags]
        code, out, err = self.run_tool(train, argv)
        self.assertEqual(code, expected, err)
        return out

    def weights(self):
        return bundle.read_safetensors(self.path("tiny", "model.safetensors"))

    def report(self):
        with open(self.path("work", "tiny.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_training_lowers_the_loss_and_the_card_reports_it(self):
        self.train("--steps", "150", "--dtype", "f32")
        curve = self.report()["curve"]
        self.assertEqual(curve[-1][0], 150)
        self.assertLess(curve[-1][2], curve[0][2] - 0.15)
        found = self.report()["figures"]["fresh sequences"]
        self.assertEqual(found["sequences"], 500)
        with open(self.path("tiny", "README.md"), encoding="utf-8") as file:
            card = file.read()
        self.assertIn(f"{found['bits']:.4f}", card)
        self.assertIn("150 steps of 16 sequences", card)
        self.assertIn("\n## Terms\n\nThe weights are under the [Apache License 2.0](", card)
        self.assertIn(f"--first 100 {self.path('tiny')}\n", card)

    def test_an_interrupted_run_ends_with_the_same_weights(self):
        self.train("--steps", "30")
        whole = self.weights()
        self.train("--steps", "30", "--fresh", "--pause-after", "1e-9", expected=3)
        found = torch.load(self.path("work", "tiny.pth"), map_location="cpu")
        self.assertTrue(0 < found["iteration"] < 30)
        self.train("--steps", "30")
        for name, tensor in self.weights().items():
            np.testing.assert_array_equal(tensor, whole[name], name)

    def test_a_budget_of_time_becomes_steps(self):
        self.train(*SHORT)
        steps = self.report()["run"]["steps"]
        self.assertTrue(41 <= steps < 10_000, steps)
        # The run has ended, and reports the same again.
        _, _, err = self.run_tool(train, [*TINY, "--work", self.path("work"), "--out", self.path("tiny"), *SHORT])
        self.assertIn(f"it keeps its {steps:,} steps, whatever --minutes says", err)
        self.assertEqual(self.report()["run"]["steps"], steps)
        self.assertNotIn("tiny.json.tmp", os.listdir(self.path("work")))

    def test_it_continues_from_weights(self):
        self.train("--steps", "2", "--dtype", "f32")
        first = self.weights()
        os.rename(self.path("work", "tiny.pth"), self.path("old.pth"))
        self.train("--steps", "1", "--lr", "1e-30", "--dtype", "f32", "--start-from", self.path("old.pth"))
        for name, tensor in self.weights().items():
            np.testing.assert_array_equal(tensor, first[name], name)

    def test_a_checkpoint_converts_to_the_same_bundle(self):
        for trained, flags in ([], []), (["--softmax", "--fresh"], ["--attention", "softmax"]):
            self.train("--steps", "2", *trained)
            argv = [self.path("work", "tiny.pth"), "--heads", "1", "--begin", "none", "--dtype", "bf16", *flags]
            code, _, err = self.run_tool(convert, [*argv, "--out", self.path("converted", "tiny")])
            self.assertEqual((code, err), (0, ""))
            for name in ("config.json", "model.safetensors"):
                with (
                    open(self.path("tiny", name), "rb") as ours,
                    open(self.path("converted", "tiny", name), "rb") as theirs,
                ):
                    self.assertEqual(ours.read(), theirs.read(), name)
        with open(self.path("tiny", "README.md"), encoding="utf-8") as file:
            self.assertIn("A transformer with softmax attention that repeats", file.read())

    def test_refuses(self):
        self.train("--steps", "1")
        common = [*TINY, "--work", self.path("work"), "--out", self.path("tiny")]
        for argv, *parts in (
            (["--steps", "1", "--lr", "3"], "another run", "lr", "--fresh"),
            (["--steps", "2"], "another run", "steps 1, not 2"),
            (["--steps", "1", "--softmax"], "another run", "softmax False, not True"),
            (["--steps", "2", "--minutes", "2"], "--steps and --minutes"),
            (["--steps", "0"], "--steps", "found 0"),
            (["--lr", "-1"], "--lr", "found -1"),
            (["--pause-after", "0"], "--pause-after"),
            (["--device", "tpu"], "--device", "'tpu'"),
            (["--seed", "-1"], "--seed"),
            (["--fresh", "--start-from", self.path("none")], "no such file"),
            (["--fresh", "--start-from", self.path("work", "tiny.pth"), "--heads", "2"], "expected shape", "found"),
            (["--name", "a b"], "name", "'a b'"),
            (["--endless"], "--endless", "copy", "goes with text"),
        ):
            with self.subTest(argv):
                self.assert_refused(train, [*common, *argv], *parts)
        self.assert_refused(train, ["mnist", "--length", "5", "--out", "x"], "--length", "mnist")
        self.assert_refused(train, ["nist", "--out", "x"], "nist")
        self.assert_refused(train, ["text", "--endless", "--softmax", "--out", "x"], "--endless and --softmax")

    def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(self):
        self.train("--steps", "1")
        before = os.stat(self.path("work", "tiny.pth")).st_mtime_ns
        argv = [*TINY, "--work", self.path("work"), "--out", self.path("tiny"), "--steps", "40", "--lr", "1e30"]
        code, _, err = self.run_tool(train, [*argv, "--fresh"])
        self.assertEqual(code, 2)
        self.assertIn("the loss is no longer finite at step", err)
        self.assertEqual(os.stat(self.path("work", "tiny.pth")).st_mtime_ns, before)

    def test_autocast_learns_too(self):
        self.train("--steps", "60", "--precision", "bf16")
        self.assertLess(self.report()["curve"][-1][2], self.report()["curve"][0][2])


class AllOnGpuTest(ToolTest):
    def call(self, *flags, expected=0):
        argv = ["--only", "copy", "--device", "cpu", "--work", self.path("work"), "--out", self.path("zoo"), *flags]
        small = ["--layers", "1", "--heads", "1", "--length", "15", "--batch", "8", "--threads", "1", "--evaluate", "9"]
        code, out, err = self.run_tool(all_on_gpu, [*argv, "--minutes", "0.01", "--", *small])
        self.assertEqual(code, expected, err)
        return out

    def test_later_calls_continue_and_pack_finished_models(self):
        self.call("--this-call", "1e-9", expected=3)  # too short for a step
        self.assertFalse(os.path.exists(self.path("zoo")))
        out = self.call("--pack", self.path("pieces"))
        self.assertIn("bits per symbol", out)
        with unittest.mock.patch.object(all_on_gpu, "PIECE_BYTES", 10_000):
            self.assertEqual(self.call("--pack", self.path("pieces")).split("wrote")[0], out.split("wrote")[0])
        pieces = sorted(os.listdir(self.path("pieces")))
        self.assertGreater(len(pieces), 1)
        joined = b""
        for piece in pieces:
            with open(self.path("pieces", piece), "rb") as file:
                joined += file.read()
        with tarfile.open(fileobj=io.BytesIO(joined)) as tar:
            names = tar.getnames()
            weights = tar.extractfile("copy/model.safetensors").read()
        self.assertIn("copy.json", names)
        with open(self.path("zoo", "copy", "model.safetensors"), "rb") as file:
            self.assertEqual(weights, file.read())

    def test_a_failed_run_is_reported_and_the_others_continue(self):
        argv = ["--device", "cpu", "--data", self.path("none"), "--work", self.path("work"), "--out", self.path("zoo")]
        with unittest.mock.patch.object(all_on_gpu, "train", side_effect=[2, 0, 0, 2]) as train_one:
            code, _, err = self.run_tool(all_on_gpu, argv)
        self.assertEqual((code, train_one.call_count), (1, 4))
        self.assertIn("not trained: copy, cifar10", err)

    def test_unfinished_runs_decide_the_exit_status_before_failures(self):
        argv = ["--device", "cpu", "--data", self.path("none"), "--work", self.path("work"), "--out", self.path("zoo")]
        with unittest.mock.patch.object(all_on_gpu, "train", side_effect=[2, 3]):
            self.assertEqual(self.run_tool(all_on_gpu, argv)[0], 3)

    def test_refuses(self):
        self.assert_refused(all_on_gpu, ["--out", "x", "--minutes", "0"], "--minutes")
        self.assert_refused(all_on_gpu, ["--out", "x", "--only", "speech"], "speech")
        self.assert_refused(
            all_on_gpu, ["--out", "x", "--decode-only", "--data", self.path("none")], "--data", "lossless"
        )


if __name__ == "__main__":
    unittest.main()
