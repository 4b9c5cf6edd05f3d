"""Pictures as arrays: uint8, (height, width) for one channel, (height, width, channels) for several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runnel_client.errors import CallError
from runnel_client.results import Run

if TYPE_CHECKING:
    import PIL.Image

Picture = npt.NDArray[np.uint8]
Shape = tuple[int, int, int]  # height, width, channels
NOT_DRAWN = 0x80  # grey: a pixel that is neither given nor drawn


def first_rows(given: npt.ArrayLike | PIL.Image.Image | None, shape: Shape) -> list[int]:
    """The values of given rows: an array, or a PIL image of the model's mode (L or RGB)."""
    if given is None:
        return []
    height, width, channels = shape
    mode = None if isinstance(given, np.ndarray) else getattr(given, "mode", None)  # np.memmap has one, too
    if isinstance(mode, str) and mode not in ("L", "RGB"):
        wanted = "L" if channels == 1 else "RGB"  # an array of mode P would be numbers of colours
        raise ValueError(f'expected an image of mode {wanted}, found {mode}: use image.convert("{wanted}")')
    rows = np.asarray(given)
    if rows.ndim == 2 and channels == 1:
        rows = rows[:, :, np.newaxis]
    if rows.ndim != 3 or rows.shape[0] > height or rows.shape[1:] != (width, channels) or rows.dtype != np.uint8:
        raise ValueError(
            f"expected up to {height} rows of {width} pixels of {channels} bytes (uint8), found {rows.dtype} of "
            f"shape {np.shape(rows)}"
        )
    values: list[int] = rows.ravel().tolist()
    return values


def put_together(given: list[int], runs: Iterable[Run], count: int, shape: Shape) -> Picture:
    """`count` pictures, (count, height, width[, channels]), from their first values and the runs of all samples.

    CallError if the server has sent values that no picture has.
    """
    pixels = np.full((count, shape[0] * shape[1] * shape[2]), NOT_DRAWN, np.uint8)
    pixels[:, : len(given)] = given
    for run in runs:
        fits = 0 <= run.position <= pixels.shape[1] - len(run.values)
        if not (fits and all(0 <= value <= 255 for value in run.values)):
            said = f"the server sent values outside of a picture of {pixels.shape[1]} bytes, at position {run.position}"
            raise CallError(f"{said}; is it a server of runnel?", "INTERNAL")
        pixels[run.sample, run.position : run.position + len(run.values)] = run.values
    return pixels.reshape((count, *(shape if shape[2] > 1 else shape[:2])))


def sheet(pictures: Picture, columns: int | None = None, gap: int = 1) -> Picture:
    """Pictures of one shape, (count, height, width[, channels]), in a nearly square grid on a grey background."""
    count, height, width = pictures.shape[:3]
    columns = columns or int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    size = (rows * (height + gap) + gap, columns * (width + gap) + gap, *pictures.shape[3:])
    whole = np.full(size, NOT_DRAWN, np.uint8)
    for index, picture in enumerate(pictures):
        top = gap + index // columns * (height + gap)
        left = gap + index % columns * (width + gap)
        whole[top : top + height, left : left + width] = picture
    return whole


def to_pil(picture: Picture, scale: int = 1) -> PIL.Image.Image:
    """A PIL image, each pixel `scale` times as wide and high. Needs Pillow."""
    import PIL.Image

    return PIL.Image.fromarray(picture.repeat(scale, axis=0).repeat(scale, axis=1))
