"""Converts checkpoints of published families to safetensors, which the server reads with their config.json.

The names of tensors stay the same (docs/models.md).
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from runnel_client import bundle
from runnel_client.errors import BundleError, check
from runnel_client.torch_file import RAW_TYPES, Raw, StoredTensor, TorchFile

VOCABULARY = "rwkv_vocab_v20230424.txt"
# Other files in the directory of the weights: how text becomes values, and how conversations are written.
BESIDE = (
    "tokenizer.json",
    "generation_config.json",
    VOCABULARY,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
)
# The beginning of the names of the first layer's tensors, for each family.
FAMILIES = {
    "blocks.0.att.": "RWKV",
    "model.layers.0.attn.": "a model of flash-linear-attention",
    "backbone.layers.0.mixer.": "Mamba",
}
PREFIX = re.compile("(.*?)(?:" + "|".join(map(re.escape, FAMILIES)) + ")")
PIECE = 1 << 20

# The safetensors type that is written for each of torch's types. The server reads all of them.
WRITTEN = {"F64": "F32", "F32": "F32", "F16": "F16", "BF16": "BF16"}

Files = dict[str, Callable[[BinaryIO], object]]


def files_of(paths: Sequence[str]) -> list[str]:
    """The paths of the checkpoint files. A directory is replaced by the checkpoints in it."""
    files: list[str] = []
    for path in paths:
        if not os.path.isfile(os.path.join(path, "config.json")):
            files.append(path)
            continue
        inside = [
            os.path.join(path, found)
            for kind in ("pytorch_model*.bin", "*.pth")
            for found in sorted(glob.glob(kind, root_dir=path))  # the path may have characters of patterns, too
        ]
        check(inside, f"{path}: expected a .pth or pytorch_model.bin in this directory, found none")
        files += inside
    return files


def family_of(names: Sequence[str]) -> str | None:
    return next((FAMILIES[begin] for begin in FAMILIES for name in names if name.startswith(begin)), None)


def common_prefix(names: Sequence[str]) -> str:
    """The prefix of every name of a model of a published family: the names of the modules around it."""
    found = {match.group(1) for match in map(PREFIX.match, names) if match}
    check(
        len(found) <= 1,
        f"expected one model, found several: their tensors begin with {', '.join(map(repr, sorted(found)))}",
    )
    prefix = found.pop() if found else ""
    return prefix if all(name.startswith(prefix) for name in names) else ""


def nearest(names: Sequence[str]) -> str | None:
    """Which published family the names resemble, and the difference; None if they resemble none."""
    for begin, family in FAMILIES.items():
        layer = re.escape(begin.removeprefix("model.").removeprefix("backbone.")).replace("0", r"\d+")
        for name in names:
            if re.search(rf"(?:^|\.){layer}", name):
                return f"it resembles {family}, whose tensors begin with '{begin}' and not as '{name[:200]}' does"
    return None


class Published:
    """The floating-point tensors of all files, by name. Other types, such as counters, are never weights."""

    def __init__(self, paths: Sequence[str]):
        self.files = [TorchFile(path) for path in paths]
        self.left_out: list[str] = []
        prefix = common_prefix([name for file in self.files for name in file.tensors])
        self.place: dict[str, tuple[TorchFile, str]] = {}
        for file in self.files:
            for full, tensor in file.tensors.items():
                name = full.removeprefix(prefix)
                if name in self.place:
                    raise BundleError(f"tensor '{name}' is in {self.place[name][0].path} and in {file.path}")
                if tensor.storage.kind not in WRITTEN:
                    self.left_out.append(name)
                    continue
                self.place[name] = file, full

    def tensor(self, name: str) -> StoredTensor:
        file, full = self.place[name]
        return file.tensors[full]

    def kind(self, name: str) -> str:
        """The type in which a tensor is written."""
        return WRITTEN[self.tensor(name).storage.kind]

    def read(self, name: str) -> Raw:
        file, full = self.place[name]
        numbers = file.read(full)
        if self.tensor(name).storage.kind != "F64":
            return numbers
        with np.errstate(over="ignore"):  # runnel refuses infinities later
            return numbers.astype(np.float32).view(RAW_TYPES["F32"])

    def rounded(self) -> list[str]:
        return [name for name in self.place if self.tensor(name).storage.kind == "F64"]

    def write(self, out: BinaryIO) -> None:
        """Writes all tensors to a safetensors file, one at a time. The widest types come first, so that each tensor is
        aligned to the size of its type."""
        names = sorted(self.place, key=lambda name: (-RAW_TYPES[self.kind(name)].itemsize, name))
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name in names:
            tensor = self.tensor(name)
            begin, end = end, end + tensor.elements * RAW_TYPES[self.kind(name)].itemsize
            header[name] = {"dtype": self.kind(name), "shape": list(tensor.shape), "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for name in names:
            out.write(self.read(name).data)


def config_of(published: Published, given: str | None) -> bytes:
    """The given config.json, or the one in the checkpoint's directory. An official RWKV has none, because its sizes
    follow from its tensors."""
    if any(name.startswith("blocks.0.att.") for name in published.place):
        check(given is None, "--config: an official RWKV has no config.json; its tensors say its family and sizes")
        families = {"r_k": "rwkv7", "time_maa_x": "rwkv6", "gate.weight": "rwkv5"}
        found = [family for name, family in families.items() if f"blocks.0.att.{name}" in published.place]
        check(
            bool(found),
            f"{published.files[0].path}: expected RWKV-7, RWKV-6 or RWKV-5.2, found none of the tensors "
            "'blocks.0.att.r_k', 'time_maa_x' and 'gate.weight'; earlier versions of RWKV are not served",
        )
        return json.dumps({"model_type": found[0], "eos_token_id": 0}, indent=2).encode() + b"\n"
    path = given or os.path.join(os.path.dirname(published.files[0].path), "config.json")
    try:
        with open(path, "rb") as file:
            text = file.read(bundle.MAX_CONFIG_BYTES + 1)
        config = json.loads(text)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}; say where the model's config.json is with --config") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: expected JSON: {error}") from None
    known = isinstance(config, dict) and ("model_type" in config or "ssm_cfg" in config)
    check(known, f"{path}: expected the model's config.json, with model_type or ssm_cfg, found neither")
    return text


def copy_of(path: str) -> Callable[[BinaryIO], object]:
    def copy(out: BinaryIO) -> None:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise BundleError(f"{path}: {error.strerror}") from None
        out.write(content)

    return copy


def text_files(published: Published, out: str, vocab: str | None, tokenizer: str | None) -> Files:
    """The files BESIDE the checkpoint; a given tokenizer or vocabulary replaces the one there. The server prefers a
    tokenizer.json, so it is left out if a vocabulary is given."""
    folder = os.path.dirname(published.files[0].path)
    only_vocab = vocab is not None and tokenizer is None
    stale = os.path.join(out, "tokenizer.json")
    check(
        not (only_vocab and os.path.lexists(stale)),
        f"{stale}: expected no such file, as the server would read it instead of the vocabulary; remove it",
    )
    files: Files = {}
    for name in BESIDE:
        if only_vocab and name == "tokenizer.json":
            continue
        path = {"tokenizer.json": tokenizer, VOCABULARY: vocab}.get(name) or os.path.join(folder, name)
        if os.path.isfile(path):
            files[name] = copy_of(path)
        else:
            check(path not in (vocab, tokenizer), f"{path}: no such file")
    return files


def digest_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


class Card(NamedTuple):
    """Text that the caller adds to the model card."""

    notes: Sequence[str]  # paragraphs below the title
    end: str


def card_of(directory: str, published: Published, added: Card) -> str:
    paths = [file.path for file in published.files]
    rows = [f"| `{os.path.basename(path)}` | `{digest_of(path)}` |" for path in paths]
    table = "\n".join(["| checkpoint | SHA-256 |", "| --- | --- |", *rows])
    name = os.path.basename(os.path.abspath(directory))
    parts = [f"# {name}", *(note.strip() for note in added.notes), "Converted from:", table]
    return "\n\n".join(parts) + "\n" + added.end


def write_all(directory: str, files: Mapping[str, Callable[[BinaryIO], object]]) -> None:
    """Writes files, each whole or not at all."""
    paths = {name: os.path.join(directory, name) for name in files}
    folders = {directory, *map(os.path.dirname, paths.values())}
    new = sorted((folder for folder in folders if not os.path.exists(folder)), key=len, reverse=True)
    try:
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        for name, write in files.items():
            with open(paths[name] + ".tmp", "wb") as out:
                write(out)
        for path in paths.values():
            os.replace(path + ".tmp", path)
    except OSError as error:
        raise BundleError(f"--out: {error.filename or directory}: {error.strerror}") from None
    finally:
        for path in paths.values():
            if os.path.exists(path + ".tmp"):
                os.remove(path + ".tmp")
        for folder in new:
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)


def publish(
    published: Published, out: str, added: Card, config: str | None, vocab: str | None, tokenizer: str | None
) -> list[str]:
    """Writes the directory, and returns notes for the user."""
    text = config_of(published, config)
    files = text_files(published, out, vocab, tokenizer)
    card = card_of(out, published, added).encode()
    write_all(
        out,
        {
            **files,
            "config.json": lambda file: file.write(text),
            "README.md": lambda file: file.write(card),
            "model.safetensors": published.write,
        },
    )
    notes = []
    if rounded := published.rounded():
        notes.append(f"{len(rounded)} tensors are rounded from F64 to F32")
    if left_out := published.left_out:
        notes.append(f"{len(left_out)} tensors of integers are left out: {', '.join(left_out[:3])}")
    if not {"tokenizer.json", VOCABULARY} & files.keys():
        notes.append("there is no tokenizer, so values are numbers; give one with --vocab or --tokenizer")
    return notes
