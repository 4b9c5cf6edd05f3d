"""The data for training and for figures: sequences of values from files in a directory.

Needs numpy, and Pillow for JPEGs. Each batch of a data set is a pure function of a seed and a step, so an interrupted
run continues as if it had not been interrupted. Nothing is downloaded. If a file is missing, the error names it.

    DIR/mnist/{train,t10k}-images-idx3-ubyte.gz
    DIR/cifar10/CIFAR-10-images_jpg.tar.gz, cifar10_lossless_first4000.bin.xz
    DIR/text/gutenberg-english.tar.xz
"""

import gzip
import io
import lzma
import os
import re
import tarfile

import numpy as np

from runnel_client import command
from runnel_client.errors import BundleError, check


class Sequences:
    """`values` [count, length + 1]. `counted` [count, length] marks the values from index 1 on that a figure counts."""

    def __init__(self, values, counted=None):
        self.values = values
        self.counted = np.ones((len(values), values.shape[1] - 1), bool) if counted is None else counted

    def __len__(self):
        return len(self.values)

    def first(self, count):
        return Sequences(self.values[:count], self.counted[:count])


def generator(*seed):
    return np.random.Generator(np.random.PCG64(seed))


class Images:
    """Images as raster bytes, each once in an epoch, in a new order. The first byte is given, not predicted."""

    unit = "dimension"

    def __init__(self, train, held_out, image, begin):
        self.train, self.held_out, self.begin = train, held_out, begin
        self.image = dict(zip(("height", "width", "channels"), image))
        self.values, self.length = 256, train.shape[1] - 1
        self.order: tuple = (None, None)  # (seed, epoch) and the permutation of it

    def batch(self, seed, step, size):
        check(size <= len(self.train), f"--batch: expected at most {len(self.train)}, found {size}")
        epoch, index = divmod(step, len(self.train) // size)
        if self.order[0] != (seed, epoch):
            self.order = ((seed, epoch), generator(seed, epoch).permutation(len(self.train)))
        return Sequences(self.train[self.order[1][index * size : (index + 1) * size]])


def mnist(directory, cache, length):
    del cache, length
    train, test = (read_idx(find(directory, "mnist", f"{part}-images-idx3-ubyte.gz")) for part in ("train", "t10k"))
    return Images(train, {"test": Sequences(test)}, (28, 28, 1), {"value": 0})


def read_idx(path):
    with gzip.open(path) as file:
        content = file.read()
    is_images = content[:4] == b"\0\0\x08\x03" and len(content) >= 16
    count, height, width = np.frombuffer(content, ">u4", 3, 4).tolist() if is_images else (0, 0, 0)
    check(
        is_images and len(content) == 16 + count * height * width,
        f"{path}: expected an idx file of images, found {len(content)} bytes of something else",
    )
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, -1)


def cifar10(directory, cache, length):
    """Lossy images to train on and to test with; and lossless ones, whose lossy forms are left out of training."""
    del length
    lossless = read_cifar(find(directory, "cifar10", "cifar10_lossless_first4000.bin.xz"))
    archive = find(directory, "cifar10", "CIFAR-10-images_jpg.tar.gz")
    train, test = (cached(cache, f"cifar10_{part}", read_jpegs, archive, part) for part in ("train", "test"))
    train = np.delete(train, nearest(train, lossless), 0)
    held_out = {"test, from JPEG": Sequences(test), "lossless": Sequences(lossless)}
    histogram = np.bincount(train[:, 0], minlength=256).tolist()
    return Images(train, held_out, (32, 32, 3), {"histogram": histogram})


def read_cifar(path):
    """Rows of a label, then a plane of each colour; as raster bytes, r g b per pixel."""
    with lzma.open(path) as file:
        rows = np.frombuffer(file.read(), np.uint8).reshape(-1, 3073)
    return np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)).reshape(-1, 3072)


def read_jpegs(archive, part):
    """All decoded images of a part, in the order of their names: [count, 3072]."""
    try:
        from PIL import Image
    except ImportError as error:
        raise BundleError(
            f"{command.missing(error, 'train')}; or decode the JPEGs on another machine: the decoded images are "
            "--work/cifar10_train.npy and cifar10_test.npy"
        ) from None
    images = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if re.fullmatch(rf"(\./)?{part}/\w+/\w+\.jpg", member.name):
                image = Image.open(io.BytesIO(member_bytes(tar, member))).convert("RGB")
                images[member.name] = np.asarray(image).reshape(-1)
    check(images, f"{archive}: expected images such as {part}/bird/0001.jpg, found none")
    order = sorted(images, key=lambda name: name.split("/")[::-1])  # classes take turns
    return np.stack([images[name] for name in order])


def nearest(images, others):
    """For each of `others`, the index of the same image apart from JPEG's losses. Compares means of 8 x 8 blocks."""

    def blocks(x):
        return x.reshape(-1, 4, 8, 4, 8, 3).astype(np.float32).mean((2, 4)).reshape(len(x), -1)

    ours, theirs = blocks(images), blocks(others)
    squares = (ours**2).sum(1)
    parts = np.array_split(theirs, max(1, len(theirs) // 500))
    return np.concatenate([(squares - 2 * part @ ours.T).argmin(1) for part in parts])


def member_bytes(archive, member):
    """The content of an archive's file."""
    file = archive.extractfile(member)
    assert file is not None, f"{member.name} is no file"
    return file.read()


def cached(cache, name, make, *arguments):
    """make(*arguments), kept as cache/name.npy."""
    path = os.path.join(cache, name + ".npy")
    if not os.path.exists(path):
        os.makedirs(cache, exist_ok=True)
        np.save(path + ".tmp.npy", make(*arguments))
        os.replace(path + ".tmp.npy", path)
    return np.load(path)


class Text:
    """Bytes of books, in windows that begin at the start of a line. Each window is preceded by a line's end."""

    unit = "byte"
    values, image, begin = 256, None, {"value": 10}
    HELD_OUT = "time_machine"
    AFTER = 1 << 15  # bytes of it that after() counts

    def __init__(self, books, length):
        self.length, self.book = length, books[self.HELD_OUT]
        train = b"\n".join(text for name, text in sorted(books.items()) if name != self.HELD_OUT)
        self.train = np.frombuffer(b"\n" + train, np.uint8)
        starts = np.flatnonzero(self.train == 10)
        self.starts = starts[starts < len(self.train) - length]
        self.held_out = {"a book held out": windows(self.book, length)}

    def batch(self, seed, step, size):
        check(len(self.starts) > 0, f"--length: expected less than {len(self.train)}, found {self.length}")
        starts = generator(seed, step).choice(self.starts, size)
        return Sequences(self.train[starts[:, None] + np.arange(self.length + 1)])

    def after(self, count):
        """The held-out book's beginning in a sequence that starts with `count` bytes of others, which do not count."""
        check(count < len(self.train), f"--after: expected less than {len(self.train)}, found {count}")
        values = np.concatenate([self.train[: count + 1], np.frombuffer(self.book[: self.AFTER], np.uint8)])
        return Sequences(values[None], (np.arange(len(values) - 1) >= count)[None])


def windows(text, length):
    """A text cut at the ends of lines into pieces of at most `length` bytes: each counts once."""
    pieces = [b""]
    for line in text.splitlines(keepends=True):
        if len(pieces[-1]) + len(line) > length:
            pieces.append(b"")
        pieces[-1] += line
    check(max(map(len, pieces)) <= length, f"expected lines of at most {length} bytes")
    values = np.zeros((len(pieces), length + 1), np.uint8)
    counted = np.zeros((len(pieces), length), bool)
    for index, piece in enumerate(pieces):
        values[index, : len(piece) + 1] = np.frombuffer(b"\n" + piece, np.uint8)
        counted[index, : len(piece)] = True
    return Sequences(values, counted)


# Plain replacements for typographic characters, which would cost a byte-level model several bytes.
PLAIN = {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2014": "--",
    "\u2013": "-",
    "\u2026": "...",
    "\ufeff": "",
    "\u00a0": " ",
}


def text(directory, cache, length):
    del cache
    path = find(directory, "text", "gutenberg-english.tar.xz")
    books = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.endswith(".txt"):
                name = os.path.basename(member.name)[: -len(".txt")]
                books[name] = prepare(member_bytes(tar, member).decode())
    check(Text.HELD_OUT in books, f"{path}: expected {Text.HELD_OUT}.txt, found {', '.join(books) or 'nothing'}")
    return Text(books, length)


def prepare(book):
    """A book without Project Gutenberg's header and footer, in plain characters, without extra white space."""
    book = re.sub(r"(?s)^.*?\*\*\* ?START OF [^\n]*\*\*\*(.*?)\*\*\* ?END OF .*$", r"\1", book.replace("\r", ""))
    for fancy, plain in PLAIN.items():
        book = book.replace(fancy, plain)
    book = re.sub(r"[ \t]+", " ", book)
    book = re.sub(r" ?\n ?", "\n", book)
    return re.sub(r"\n{3,}", "\n\n", book).strip().encode() + b"\n"


class Copy:
    """The copy task of the paper: n random symbols, 0, the same symbols again, zeros to the end.

    The figure counts the n repeated symbols and the 0 after them, which can all be predicted.
    """

    unit = "symbol"
    values, image, begin = 11, None, None

    def __init__(self, length):
        self.total, self.length = length + 1, length
        self.held_out = {"fresh sequences": self.draw(generator(2**32), 1000)}

    def batch(self, seed, step, size):
        return self.draw(generator(seed, step), size)

    def draw(self, rng, count):
        sizes = rng.integers(self.total // 4, (self.total - 1) // 2, count)
        values = np.zeros((count, self.total), np.uint8)
        counted = np.zeros((count, self.length), bool)
        for row, size in enumerate(sizes):
            symbols = rng.integers(1, self.values, size)
            values[row, :size] = values[row, size + 1 : 2 * size + 1] = symbols
            counted[row, size : 2 * size + 1] = True
        return Sequences(values, counted)


def copy(directory, cache, length):
    del directory, cache
    return Copy(length)


def find(directory, *parts):
    path = os.path.join(directory, *parts)
    check(os.path.exists(path), f"--data: expected the file {path}, found none")
    return path


LOADERS = {"mnist": mnist, "cifar10": cifar10, "text": text, "copy": copy}
LENGTHS = {"text": 1024, "copy": 127}


def load(name, directory, cache, length=None):
    """Loads a data set. `length`: the inputs of a sequence, unless the data determine it."""
    return LOADERS[name](directory, cache, length or LENGTHS.get(name))
