"""Tensors of a file that torch.save wrote, read without torch and without running anything that it says.

Such a file is a zip archive of a pickle, which may name only what tensors are made of, and of the numbers. They are
mapped, never all in memory.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel_client.errors import BundleError, check

Raw = npt.NDArray[Any]  # numbers as they are stored: of 2 or 4 bytes

MAX_PICKLE_BYTES = 64 << 20
MAX_BYTEORDER_BYTES = 16
LOCAL_HEADER_BYTES = 30
STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
RAW_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<u4"), "F16": np.dtype("<u2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True)
class Storage:
    """An entry of the archive that holds numbers of one type."""

    kind: str
    entry: str
    elements: int


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor's numbers are; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def rebuild_tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> StoredTensor:
    """What torch._utils._rebuild_tensor_v2 is called with; nothing of it is trusted."""
    sizes = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= 8
    if not (sizes and isinstance(storage, Storage) and all(map(is_size, (offset, *shape, *strides)))):  # type: ignore[misc]
        raise pickle.UnpicklingError("a tensor without a storage, or with sizes that are none")
    tensor = StoredTensor(storage, offset, shape, strides)  # type: ignore[arg-type]
    if tensor.elements > 0:
        last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
        if last >= storage.elements or tensor.elements > storage.elements:
            raise pickle.UnpicklingError(f"a tensor of shape {list(tensor.shape)} that does not fit its storage")
    return tensor


def rebuild_parameter(tensor: object, *_: object) -> object:
    return tensor


GLOBALS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    **{("torch", name): kind for name, kind in STORAGES.items()},
}


class TensorUnpickler(pickle.Unpickler):
    """Knows the names of GLOBALS, and no others."""

    root = ""  # of the archive's entries

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in GLOBALS:
            raise pickle.UnpicklingError(f"'{module}.{name}', which is nothing that tensors are made of")
        return GLOBALS[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        words = isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[2], str)
        if not (words and pid[1] in STORAGES.values() and is_size(pid[4])):
            raise pickle.UnpicklingError("a storage of numbers that are not F32, F16 or BF16")
        return Storage(pid[1], f"{self.root}/data/{pid[2]}", pid[4])


class TorchFile:
    """The tensors of one file, by name."""

    def __init__(self, path: str):
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.entries = {entry.filename: entry for entry in archive.infolist()}
                self.tensors = self.read_names(archive)
        except OSError as error:
            raise BundleError(f"{path}: {error.strerror}") from None
        except BundleError:
            raise
        except Exception as error:  # what a broken archive or pickle raises is of a dozen kinds
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise BundleError(f"{path}: expected a file of torch.save with tensors only, found: {text}") from None

    def read_names(self, archive: zipfile.ZipFile) -> dict[str, StoredTensor]:
        pickles = [name for name in self.entries if name.endswith("/data.pkl")]
        check(len(pickles) == 1, f"{self.path}: expected one data.pkl, as torch.save writes it, found {len(pickles)}")
        root = pickles[0].removesuffix("/data.pkl")
        order = self.entries.get(f"{root}/byteorder")
        if order is not None:
            check(
                order.compress_type == zipfile.ZIP_STORED and order.file_size <= MAX_BYTEORDER_BYTES,
                f"{self.path}: expected a byteorder of at most {MAX_BYTEORDER_BYTES} bytes, not compressed, "
                f"found {order.file_size}",
            )
            check(archive.read(order).strip() == b"little", f"{self.path}: expected little-endian numbers")
        check(
            self.entries[pickles[0]].file_size <= MAX_PICKLE_BYTES,
            f"{self.path}: expected a data.pkl of at most {MAX_PICKLE_BYTES} bytes",
        )
        with archive.open(pickles[0]) as file:
            unpickler = TensorUnpickler(file)
            unpickler.root = root
            found = unpickler.load()
        check(isinstance(found, dict), f"{self.path}: expected a dict of tensors, found {type(found).__name__}")
        for name, tensor in found.items():
            check(
                isinstance(name, str) and isinstance(tensor, StoredTensor),
                f"{self.path}: expected tensors by name, found {type(tensor).__name__} at {name!r}",
            )
            self.check_storage(tensor.storage)
        return dict(found)

    def check_storage(self, storage: Storage) -> None:
        entry = self.entries.get(storage.entry)
        if entry is None:
            raise BundleError(f"{self.path}: {storage.entry}: expected in the archive, found no such entry")
        size = storage.elements * RAW_TYPES[storage.kind].itemsize
        check(
            entry.compress_type == zipfile.ZIP_STORED and entry.file_size == size,
            f"{self.path}: {storage.entry}: expected {size} bytes, not compressed, found {entry.file_size}",
        )

    def read(self, name: str) -> Raw:
        """A tensor's numbers as they are stored, in the order of its shape."""
        tensor = self.tensors[name]
        storage = tensor.storage
        kind = RAW_TYPES[storage.kind]
        if tensor.elements == 0:
            return np.empty(tensor.shape, kind)
        whole = np.memmap(self.path, kind, "r", self.data_offset(storage.entry), (storage.elements,))
        strides = [stride * kind.itemsize for stride in tensor.strides]
        view = np.lib.stride_tricks.as_strided(whole[tensor.offset :], tensor.shape, strides, writeable=False)
        return np.ascontiguousarray(view)

    def data_offset(self, entry: str) -> int:
        """Where an entry's bytes begin, which only its local header tells."""
        begin = self.entries[entry].header_offset
        with open(self.path, "rb") as file:
            file.seek(begin)
            header = file.read(LOCAL_HEADER_BYTES)
            end = file.seek(0, 2)
        check(header[:4] == b"PK\3\4", f"{self.path}: {entry}: expected a header of the archive, found none")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        offset = begin + LOCAL_HEADER_BYTES + lengths
        check(offset + self.entries[entry].file_size <= end, f"{self.path}: {entry}: the file ends within it")
        return offset
