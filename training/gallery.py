#!/usr/bin/env python3
"""Make the pictures of a model card, through a server: what the model draws, completes and writes.

For a model of images, into --out:
  samples.png      64 images, sampled
  completions.png  a row for each of 8 held-out images: the image, its upper half, 6 completions of that
  strip.png        one sampled image when a quarter, half, three quarters and all of it were there
For a model of bytes of text:
  sample.txt       one text, sampled
"""

import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from runnel_client import command
from runnel_client.errors import BundleError, check

try:
    import numpy as np

    import datasets
    from runnel_client import serving
    from runnel_client.bundle import read_json
except ImportError as error:
    command.exit_missing("gallery.py", error, "")

EXAMPLES = """examples:
  gallery.py --runnel build/release/runnel --dataset mnist --data data --out docs/images/mnist zoo/mnist-small
  gallery.py --server 127.0.0.1:50051 --dataset text --values 800 --out /tmp zoo/text
"""
HIDDEN = 96  # the grey of pixels that are not drawn yet
GAP = 2


def parse_arguments(argv):
    parser = command.Parser("gallery.py", __doc__, EXAMPLES)
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the bundle's directory")
    add("--dataset", required=True, choices=("mnist", "cifar10", "text"))
    add("--data", default="data", metavar="DIR", help="directory of the data (default: data)")
    add("--work", default="build/train", metavar="DIR", help="for decoded images (default: build/train)")
    add("--out", required=True, metavar="DIR", help="for the pictures; those that are there are replaced")
    add("--runnel", metavar="PROGRAM", help="serves the bundle while this runs")
    add("--server", metavar="ADDRESS", help="in place of --runnel: a server that has the bundle")
    add("--seed", type=int, default=1, help="of what is sampled (default: 1)")
    add("--temperature", type=float, default=1.0, help="of what is sampled (default: 1)")
    add("--values", type=int, default=1000, metavar="N", help="bytes of a text (default: 1000)")
    add("--scale", type=int, default=2, metavar="N", help="pixels of a picture for one of an image (default: 2)")
    args = parser.parse_args(argv)
    check(args.scale >= 1, f"--scale: expected at least 1, found {args.scale}")
    check(args.values >= 1, f"--values: expected at least 1, found {args.values}")
    return args


def sheet(rows, image, scale):
    """A picture [height, width, channels] of images (byte sequences) in rows, with gaps between them."""
    shape = image["height"], image["width"], image["channels"]
    cells = np.array(rows, np.uint8).reshape(len(rows), -1, *shape)
    cells = np.pad(cells, ((0, 0), (0, 0), (GAP, 0), (GAP, 0), (0, 0)), constant_values=255)
    picture = cells.transpose(0, 2, 1, 3, 4).reshape(len(rows) * (shape[0] + GAP), -1, shape[2])
    picture = np.pad(picture, ((0, GAP), (0, GAP), (0, 0)), constant_values=255)
    return picture.repeat(scale, 0).repeat(scale, 1)


def write_png(path, picture):
    height, width, channels = picture.shape

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    rows = np.pad(picture.reshape(height, -1), ((0, 0), (1, 0)))  # each begins with its filter: none
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))
    print(f"wrote {path}")


def shown(values, count):
    """The first `count` bytes of an image; the rest hidden."""
    return np.where(np.arange(len(values)) < count, values, HIDDEN)


def draw_images(client, config, args, sampling):
    data = datasets.load(args.dataset, args.data, args.work)
    image = config["image"]
    samples = client.generate([[]], samples=64, **sampling)[0]
    write_png(
        os.path.join(args.out, "samples.png"), sheet([samples[i : i + 8] for i in range(0, 64, 8)], image, args.scale)
    )
    originals = next(iter(data.held_out.values())).values[:8]
    half = originals.shape[1] // 2
    found = client.generate([row[:half] for row in originals], samples=6, **sampling)
    rows = [
        [row, shown(row, half), *(np.concatenate([row[:half], rest]) for rest in completions)]
        for row, completions in zip(originals, found)
    ]
    write_png(os.path.join(args.out, "completions.png"), sheet(rows, image, args.scale))
    parts = [shown(samples[0], len(samples[0]) * quarters // 4) for quarters in (1, 2, 3, 4)]
    write_png(os.path.join(args.out, "strip.png"), sheet([parts], image, args.scale))


def write_text(client, args, sampling):
    [[values]] = client.generate([[]], max_values=args.values, **sampling)
    path = os.path.join(args.out, "sample.txt")
    with open(path, "wb") as file:
        file.write(bytes(values).strip() + b"\n")
    print(f"wrote {path}")


def run(argv):
    args = parse_arguments(argv)
    config = read_json(os.path.join(args.bundle, "config.json"), "BUNDLE")
    try:
        os.makedirs(args.out, exist_ok=True)
    except OSError as error:
        raise BundleError(f"--out: {error.filename}: {error.strerror}") from None
    sampling = {"seed": args.seed, "temperature": args.temperature}
    with serving.connect(args.bundle, args.runnel, args.server, ("--precision", "fp32")) as client:
        if "image" in config:
            draw_images(client, config, args, sampling)
        else:
            write_text(client, args, sampling)


def main(argv=None):
    return command.run("gallery.py", run, argv)


if __name__ == "__main__":
    sys.exit(main())
