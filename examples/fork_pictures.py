#!/usr/bin/env python3
"""Draws what forks make of one beginning: a sheet of endings, and a tree.

    python3 examples/fork_pictures.py [ADDRESS] [--endings endings.png] [--tree tree.png]

The upper half of the picture is fed once and forked into sixteen sessions. Of the tree, each node has the rows that its
path has drawn; its children begin with them, and draw on by seeds of their own.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import numpy as np
import PIL.Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from runnel_client import Client, Session, pictures
from runnel_client.pictures import NOT_DRAWN, Picture

ROWS = (6, 13, 20, 28)  # that the nodes of each level of the tree have
CHILDREN = (3, 3, 2)  # of a node of each level but the last
GAP = 6  # pixels between two pictures of the tree, and half of those between two levels


def draw_on(session: Session, known: Picture, rows: int, seed: int) -> Picture:
    """The picture with its first rows, the others grey, once the session has drawn the missing ones."""
    height, width = known.shape
    begun = session.info().position // width
    values = list(session.generate(max_values=(rows - begun) * width, seed=seed).values())
    drawn = known.copy()
    drawn[begun:rows] = np.reshape(values, (rows - begun, width))
    return drawn


def endings(session: Session, known: Picture, count: int) -> Picture:
    """What forks of the session make of the picture, in a grid."""
    forks = session.fork(count)
    drawn = []
    for seed, fork in enumerate(forks):
        with fork:
            drawn.append(draw_on(fork, known, len(known), seed))
    return pictures.sheet(np.stack(drawn))


def tree(session: Session, known: Picture, level: int = 0, seed: int = 0) -> Picture:
    """The picture of a node above those of its children, with lines between."""
    node = draw_on(session, known, ROWS[level], seed)
    if level == len(CHILDREN):
        return node
    below = []
    for number, fork in enumerate(session.fork(CHILDREN[level])):
        with fork:
            below.append(tree(fork, node, level + 1, CHILDREN[level] * seed + number))
    return put_above(node, below)


def put_above(node: Picture, below: list[Picture]) -> Picture:
    height, width = node.shape
    whole = np.full((height + 2 * GAP + len(below[0]), sum(part.shape[1] + GAP for part in below) - GAP), 255, np.uint8)
    middle, left, stems = whole.shape[1] // 2, 0, []
    whole[:height, middle - width // 2 : middle - width // 2 + width] = node
    for part in below:
        whole[height + 2 * GAP :, left : left + part.shape[1]] = part
        stems.append(left + part.shape[1] // 2)
        left += part.shape[1] + GAP
    whole[height : height + GAP, middle] = NOT_DRAWN
    whole[height + GAP, min(stems) : max(stems) + 1] = NOT_DRAWN
    whole[height + GAP : height + 2 * GAP, stems] = NOT_DRAWN
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="?", default="127.0.0.1:50051")
    parser.add_argument("--picture", default=pathlib.Path(__file__).with_name("digit.png"), help="of the model's size")
    parser.add_argument("--model", default="mnist-small")
    parser.add_argument("--endings", default="endings.png")
    parser.add_argument("--tree", default="tree.png")
    args = parser.parse_args()
    given = np.asarray(PIL.Image.open(args.picture).convert("L"))
    with Client(args.server) as client:
        for name, rows, scale, draw in (
            (args.endings, len(given) // 2, 3, lambda session, known: endings(session, known, 16)),
            (args.tree, ROWS[0], 2, tree),
        ):
            with client.session(model=args.model) as session:
                session.feed(given[:rows])
                known = np.full_like(given, NOT_DRAWN)
                known[:rows] = given[:rows]
                pictures.to_pil(draw(session, known), scale=scale).save(name)
                print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
