"""Boxes and masks of objects, measured over the cells of a map's grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from captioning.data.records import ImageObject
from captioning.errors import InputError, shown

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels of the photo."""

MOST_BITS = 30
"""Bits of a compressed run length before its last character."""


@dataclass(frozen=True)
class Area:
    """A part of a photo, as a set of rectangles between horizontal and vertical edges.

    Attributes:
        x: the edges from left to right, in pixels of the photo.
        y: the edges from top to bottom.
        inside: whether each rectangle between the edges belongs to the part.
    """

    x: Float[np.ndarray, "x_edges"]
    y: Float[np.ndarray, "y_edges"]
    inside: Bool[np.ndarray, "rows columns"]

    @classmethod
    def of_boxes(cls, boxes: Sequence[Box]) -> "Area":
        """The union of the boxes."""
        left, top, width, height = np.array(boxes, dtype=np.float64).T
        x, y = np.unique([left, left + width]), np.unique([top, top + height])
        return cls(x, y, points_inside(boxes, x[:-1], y[:-1]))

    @classmethod
    def of_mask(cls, mask: Bool[np.ndarray, "H W"]) -> "Area":
        """The pixels of a mask."""
        height, width = mask.shape
        return cls(np.arange(width + 1.0), np.arange(height + 1.0), mask)

    def shares(self, crop: Box, grid: tuple[int, int]) -> Float[np.ndarray, "rows columns"]:
        """The share of each cell that lies in the area.

        Args:
            crop: the part of the photo that the model sees.
            grid: rows and columns of the cells, which cover the crop.
        """
        left, top, across, down = crop
        rows, columns = grid
        vertical = _overlaps(top + down * np.arange(rows + 1) / rows, self.y) * rows / down
        edges = left + across * np.arange(columns + 1) / columns
        horizontal = _overlaps(edges, self.x) * columns / across
        return vertical @ self.inside.astype(np.float64) @ horizontal.T


def _overlaps(
    edges: Float[np.ndarray, "edges"], others: Float[np.ndarray, "others"]
) -> Float[np.ndarray, "cells parts"]:
    """The length of the overlap of each interval between `edges` with each between `others`."""
    ends = np.minimum(edges[1:, None], others[None, 1:])
    starts = np.maximum(edges[:-1, None], others[None, :-1])
    return np.maximum(ends - starts, 0.0)


def points_inside(
    boxes: Sequence[Box], x: Float[np.ndarray, "columns"], y: Float[np.ndarray, "rows"]
) -> Bool[np.ndarray, "rows columns"]:
    """Whether each point lies in any of the boxes, whose right and lower edges are outside."""
    left, top, width, height = np.array(boxes, dtype=np.float64).T[:, :, None]
    columns = (left <= x) & (x < left + width)
    rows = (top <= y) & (y < top + height)
    found: Bool[np.ndarray, "rows columns"] = (rows[:, :, None] & columns[:, None]).any(axis=0)
    return found


@dataclass(frozen=True)
class Target:
    """Where a category's objects are in the crop that a model sees.

    Attributes:
        crop: what the model sees; the cells of the grid cover it.
        boxes: the boxes of the objects that are at least partly inside the crop.
        in_box: the share of each cell that lies in any of the boxes.
        in_mask: the share of each cell that lies in any of the masks; None if an object has no
            mask.
    """

    crop: Box
    boxes: tuple[Box, ...]
    in_box: Float[np.ndarray, "rows columns"]
    in_mask: Float[np.ndarray, "rows columns"] | None

    @classmethod
    def of(
        cls,
        objects: Sequence[ImageObject],
        size: tuple[int, int],
        crop: Box,
        grid: tuple[int, int],
    ) -> "Target | None":
        """The target of a category's objects; None if all of them are outside the crop.

        An object with a mask is inside if a part of its mask is, not just of its box. `size` is
        width and height of the photo in pixels.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size.
        """
        boxes: list[Box] = []
        union, are_masked = np.zeros(size[::-1], dtype=bool), True
        for each in objects:
            mask = decoded_mask(each.mask, size) if each.mask else None
            area = Area.of_boxes([each.box]) if mask is None else Area.of_mask(mask)
            if area.shares(crop, (1, 1)) > 0:
                boxes.append(each.box)
                if mask is None:
                    are_masked = False
                else:
                    union |= mask
        if not boxes:
            return None
        in_mask = Area.of_mask(union).shares(crop, grid) if are_masked else None
        return cls(crop, tuple(boxes), Area.of_boxes(boxes).shares(crop, grid), in_mask)

    @property
    def box_holds(self) -> Bool[np.ndarray, "rows columns"]:
        """Whether each cell's centre lies in any of the boxes."""
        return self._holds(*self.in_box.shape)

    @property
    def covers_middle(self) -> bool:
        """Whether one of the boxes contains the middle of the crop, where a Gaussian points."""
        return bool(self._holds(1, 1))

    def _holds(self, rows: int, columns: int) -> Bool[np.ndarray, "rows columns"]:
        left, top, across, down = self.crop
        x = left + across * (np.arange(columns) + 0.5) / columns
        return points_inside(self.boxes, x, top + down * (np.arange(rows) + 0.5) / rows)


def decoded_mask(mask: Any, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """The pixels of COCO's ``segmentation``: polygons, or run lengths, compressed or not.

    pycocotools reads and writes out of bounds if run lengths do not fit their size. So it is used
    only for polygons, after their coordinates are checked. `size` is width and height of the photo.

    Raises:
        InputError: the mask cannot be decoded, or is of a photo of another size.
    """
    width, height = size
    try:
        if isinstance(mask, list):
            return _filled(mask, width, height)
        if mask["size"] != [height, width]:
            raise InputError(
                f"a mask of {shown(mask['size'])} (height, width) but a photo of "
                f"{width} x {height} pixels; use the photos that were annotated"
            )
        counts = mask["counts"]
        is_list = isinstance(counts, list)
        runs = np.array(counts, dtype=np.int64) if is_list else _decompressed(counts)
        if not ((runs >= 0) & (runs <= width * height)).all() or runs.sum() != width * height:
            raise ValueError
        inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
        return inside.reshape((height, width), order="F")
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise InputError(
            "a segmentation that is neither polygons in the photo nor its run lengths; omit it, or "
            "write it as COCO does"
        ) from None


def _filled(polygons: list[Any], width: int, height: int) -> Bool[np.ndarray, "H W"]:
    """The pixels inside any of the polygons; raises ValueError if one is malformed."""
    from pycocotools import mask as run_length

    corners, side = (
        [np.array(polygon, dtype=np.float64) for polygon in polygons],
        max(width, height),
    )
    for each in corners:
        is_near = ((-side <= each) & (each <= 2 * side)).all()  # false for NaN
        if each.ndim != 1 or len(each) < 4 or len(each) % 2 or not is_near:
            raise ValueError
    if not corners:
        raise ValueError
    lengths = run_length.frPyObjects([each.tolist() for each in corners], height, width)
    return run_length.decode(run_length.merge(lengths)).astype(bool)


def _decompressed(characters: str | bytes) -> Int[np.ndarray, "runs"]:
    """Decompress COCO's run lengths; raises ValueError if they are malformed.

    A length is encoded with five bits per character, lowest first; bit 32 says that more follow,
    and the last one's highest bit is the sign. From the fourth length on, the difference from the
    last but one is encoded.
    """
    text = characters if isinstance(characters, bytes) else characters.encode("ascii")
    codes = np.frombuffer(text, dtype=np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(codes < 32)
    if not ((codes >= 0) & (codes < 64)).all() or not ends.size or ends[-1] < len(codes) - 1:
        raise ValueError
    starts = np.append(0, ends[:-1] + 1)
    bits = 5 * (np.arange(len(codes)) - np.repeat(starts, ends - starts + 1))
    if bits.max() > MOST_BITS:
        raise ValueError
    runs = np.add.reduceat((codes & 31) << bits, starts) - ((codes[ends] & 16) << bits[ends] + 1)
    for first in (1, 2):
        runs[first::2] = runs[first::2].cumsum()
    return runs
