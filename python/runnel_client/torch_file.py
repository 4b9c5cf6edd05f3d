"""Reads the tensors of a file that torch.save wrote, without torch and without running code from the file.

Such a file is a zip archive with a pickle and the numbers. The pickle may name only the classes that tensors need.
Before torch 1.6 it was a sequence of pickles, followed by the numbers. The numbers are memory-mapped.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runnel_client import state_dict
from runnel_client.errors import BundleError, check

Raw = npt.NDArray[Any]  # numbers as stored; for the 16-bit types, their bits

MAX_PICKLE_BYTES = 64 << 20
MAX_ELEMENTS = 1 << 58  # of a tensor; numpy refuses more, also if one of the sizes is 0
MAX_BYTEORDER_BYTES = 16
LOCAL_HEADER_BYTES = 30
LENGTH_BYTES = 8  # before each storage of the older form
LEGACY_BEGIN = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)  # a magic number and a version
STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
RAW_TYPES = {
    kind: np.dtype(numbers)
    for kind, numbers in (
        ("F64", "<f8"),
        ("F32", "<u4"),
        ("F16", "<u2"),
        ("BF16", "<u2"),
        ("I64", "<i8"),
        ("I32", "<i4"),
        ("I16", "<i2"),
        ("I8", "i1"),
        ("U8", "u1"),
        ("BOOL", "u1"),
    )
}


# The next two classes are tuples, because a pickle may set the attributes of every object that has a __dict__.
class Storage(NamedTuple):
    """Numbers of one type, which several tensors may share."""

    kind: str
    key: str
    elements: int

    @property
    def bytes(self) -> int:
        return self.elements * RAW_TYPES[self.kind].itemsize


class StoredTensor(NamedTuple):
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
    """A tensor of the arguments of torch._utils._rebuild_tensor and _rebuild_tensor_v2, which are not trusted."""
    sizes = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= 8
    if not (sizes and isinstance(storage, Storage) and all(map(is_size, (offset, *shape, *strides)))):  # type: ignore[misc]
        raise pickle.UnpicklingError("a tensor without a storage, or with sizes that are none")
    tensor = StoredTensor(storage, offset, shape, strides)  # type: ignore[arg-type]
    if math.prod(size or 1 for size in tensor.shape) > MAX_ELEMENTS:
        raise pickle.UnpicklingError(f"a tensor of shape {list(tensor.shape)}")
    if tensor.elements > 0:
        last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
        if last >= storage.elements or tensor.elements > storage.elements:
            raise pickle.UnpicklingError(f"a tensor of shape {list(tensor.shape)} that does not fit its storage")
    return tensor


def rebuild_parameter(tensor: object, *_: object) -> object:
    return tensor


GLOBALS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    **{("torch", name): kind for name, kind in STORAGES.items()},
}


class SmallUnpickler(pickle._Unpickler):
    """Takes memory only for the bytes of a file.

    The unpickler in C allocates 8 bytes for each index up to the largest one in the file, and both allocate a bytearray
    before they read it.
    """

    dispatch = dict(pickle._Unpickler.dispatch)

    def load_bytearray8(self) -> None:
        raise pickle.UnpicklingError("a bytearray")

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8  # type: ignore[assignment]


class TensorUnpickler(SmallUnpickler):
    """Accepts only the names of GLOBALS."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in GLOBALS:
            raise pickle.UnpicklingError(f"'{module}.{name}', which is nothing that tensors are made of")
        return GLOBALS[module, name]

    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def persistent_load(self, pid: Any) -> Storage:
        words = isinstance(pid, tuple) and len(pid) in (5, 6) and pid[0] == "storage" and isinstance(pid[2], str)
        if not (words and pid[1] in STORAGES.values() and is_size(pid[4])):
            raise pickle.UnpicklingError(f"a storage of numbers that are not {', '.join(STORAGES.values())}")
        if len(pid) == 6 and pid[5] is not None:
            raise pickle.UnpicklingError("a storage that is a part of another; save the checkpoint again")
        return self.storages.setdefault(pid[2], Storage(pid[1], pid[2], pid[4]))


class Archive:
    """The zip archive that torch.save writes."""

    def __init__(self, path: str):
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.entries = {entry.filename: entry for entry in archive.infolist()}
            pickles = [name for name in self.entries if name.endswith("/data.pkl")]
            check(len(pickles) == 1, f"{path}: expected one data.pkl, as torch.save writes it, found {len(pickles)}")
            self.root = pickles[0].removesuffix("/data.pkl")
            self.check_byteorder(archive)
            check(
                self.entries[pickles[0]].file_size <= MAX_PICKLE_BYTES,
                f"{path}: expected a data.pkl of at most {MAX_PICKLE_BYTES} bytes",
            )
            with archive.open(pickles[0]) as file:
                self.content = TensorUnpickler(file).load()

    def check_byteorder(self, archive: zipfile.ZipFile) -> None:
        order = self.entries.get(f"{self.root}/byteorder")
        if order is None:
            return
        check(
            order.compress_type == zipfile.ZIP_STORED and order.file_size <= MAX_BYTEORDER_BYTES,
            f"{self.path}: expected a byteorder of at most {MAX_BYTEORDER_BYTES} bytes, not compressed, "
            f"found {order.file_size}",
        )
        check(archive.read(order).strip() == b"little", f"{self.path}: expected little-endian numbers")

    def check_storage(self, storage: Storage) -> None:
        name = f"{self.root}/data/{storage.key}"
        entry = self.entries.get(name)
        if entry is None:
            raise BundleError(f"{self.path}: {name}: expected in the archive, found no such entry")
        check(
            entry.compress_type == zipfile.ZIP_STORED and entry.file_size == storage.bytes,
            f"{self.path}: {name}: expected {storage.bytes} bytes, not compressed, found {entry.file_size}",
        )

    def offset(self, storage: Storage) -> int:
        """Where a storage's bytes begin. Only the local header of its zip entry has the offset."""
        name = f"{self.root}/data/{storage.key}"
        begin = self.entries[name].header_offset
        with open(self.path, "rb") as file:
            file.seek(begin)
            header = file.read(LOCAL_HEADER_BYTES)
            end = file.seek(0, 2)
        check(header[:4] == b"PK\3\4", f"{self.path}: {name}: expected a header of the archive, found none")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        offset = begin + LOCAL_HEADER_BYTES + lengths
        check(offset + storage.bytes <= end, f"{self.path}: {name}: the file ends within it")
        return offset


class Legacy:
    """The form of torch.save before torch 1.6: pickles, the last one a list of storages, then each after its length."""

    def __init__(self, path: str):
        self.path = path
        with open(path, "rb") as file:
            pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
            self.end = file.seek(0, 2)
        begins = pickles.read(len(LEGACY_BEGIN)) == LEGACY_BEGIN
        check(begins, f"{path}: expected a file of torch.save with tensors only, found another, or a part of one")
        system = TensorUnpickler(pickles).load()
        little = isinstance(system, dict) and system.get("little_endian") is True
        check(little, f"{path}: expected little-endian numbers")
        unpickler = TensorUnpickler(pickles)
        self.content = unpickler.load()
        keys = TensorUnpickler(pickles).load()
        named = isinstance(keys, list) and all(isinstance(key, str) and key in unpickler.storages for key in keys)
        check(named, f"{path}: expected a list of the storages after the pickles")
        self.begins = self.find_begins([unpickler.storages[key] for key in keys], pickles.tell())

    def find_begins(self, storages: list[Storage], begin: int) -> dict[str, int]:
        begins: dict[str, int] = {}
        with open(self.path, "rb") as file:
            for storage in storages:
                file.seek(begin)
                elements = int.from_bytes(file.read(LENGTH_BYTES), "little")
                begins[storage.key] = begin + LENGTH_BYTES
                begin += LENGTH_BYTES + storage.bytes
                check(
                    elements == storage.elements and begin <= self.end,
                    f"{self.path}: expected {storage.elements} numbers of storage {storage.key}, found {elements}, "
                    "or the end of the file",
                )
        return begins

    def check_storage(self, storage: Storage) -> None:
        check(storage.key in self.begins, f"{self.path}: storage {storage.key}: expected in the file, found none")

    def offset(self, storage: Storage) -> int:
        return self.begins[storage.key]


class TorchFile:
    """The tensors of one file, by name, without the parts of names that wrappers add."""

    def __init__(self, path: str):
        self.path = path
        try:
            self.file: Archive | Legacy = Archive(path) if zipfile.is_zipfile(path) else Legacy(path)
            self.tensors = self.find_tensors(self.file.content)
        except OSError as error:
            raise BundleError(f"{path}: {error.strerror}") from None
        except BundleError:
            raise
        except Exception as error:  # a broken archive or pickle raises a dozen kinds of exceptions
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise BundleError(f"{path}: expected a file of torch.save with tensors only, found: {text}") from None

    def find_tensors(self, content: object) -> dict[str, StoredTensor]:
        if not isinstance(content, dict):
            raise BundleError(f"{self.path}: expected a dict of tensors, found {type(content).__name__}")
        tensors = state_dict.find_weights(self.path, content, StoredTensor)
        for tensor in tensors.values():
            self.file.check_storage(tensor.storage)
        return tensors

    def read(self, name: str) -> Raw:
        """A tensor's numbers as they are stored, in the order of its shape."""
        tensor = self.tensors[name]
        kind = RAW_TYPES[tensor.storage.kind]
        if tensor.elements == 0:
            return np.empty(tensor.shape, kind)
        # Before torch 1.6 the numbers followed the pickles, so they may be unaligned. So bytes are mapped, not numbers.
        whole = np.memmap(self.path, np.uint8, "r", self.file.offset(tensor.storage), (tensor.storage.bytes,))
        strides = [stride * kind.itemsize for stride in tensor.strides]
        begin = whole[tensor.offset * kind.itemsize :]
        return np.ndarray(tensor.shape, kind, begin, 0, strides).copy()
