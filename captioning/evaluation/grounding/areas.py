"""Boxes and masks of objects, measured over the cells of a map's grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from captioning.data.records import ImageObject
from captioning.errors import InputError, shown

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels of the photo."""

MOST_BITS = 30
"""Bits of a compressed run length before its last character."""

REMEDY = "omit it, or write it as COCO does"


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
        right, bottom = left + width, top + height
        x, y = np.unique([left, right]), np.unique([top, bottom])
        inside = np.zeros((len(y) - 1, len(x) - 1), dtype=bool)
        columns = np.searchsorted(x, [left, right]).T.tolist()
        rows = np.searchsorted(y, [top, bottom]).T.tolist()
        for (first_row, row), (first_column, column) in zip(rows, columns, strict=True):
            inside[first_row:row, first_column:column] = True
        return cls(x, y, inside)

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

    def holds(self, crop: Box, grid: tuple[int, int]) -> Bool[np.ndarray, "rows columns"]:
        """Whether the centre of each cell lies in the area."""
        left, top, across, down = crop
        rows, columns = grid
        centres = top + down * (np.arange(rows) + 0.5) / rows
        y = np.searchsorted(self.y, centres, side="right")
        centres = left + across * (np.arange(columns) + 0.5) / columns
        x = np.searchsorted(self.x, centres, side="right")
        return np.pad(self.inside, 1)[y[:, None], x]  # the padding is what lies beyond all edges


@dataclass(frozen=True)
class Place:
    """Where a category's objects are in the crop that a model sees.

    Attributes:
        boxes: the boxes of the objects that are at least partly inside the crop.
        in_box: the share of each cell that lies in any of the boxes.
        box_holds: whether each cell's centre lies in any of the boxes.
        in_mask: the share of each cell that lies in any of the masks; None if an object has no
            mask.
    """

    boxes: tuple[Box, ...]
    in_box: Float[np.ndarray, "rows columns"]
    box_holds: Bool[np.ndarray, "rows columns"]
    in_mask: Float[np.ndarray, "rows columns"] | None

    @classmethod
    def of(
        cls,
        objects: Sequence[ImageObject],
        size: tuple[int, int],
        crop: Box,
        grid: tuple[int, int],
    ) -> "Place | None":
        """The place of a category's objects; None if all of them are outside the crop.

        An object with a mask is inside if a part of its mask is, not just of its box. `size` is
        width and height of the photo in pixels; the cells of the grid cover the crop.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size.
        """
        seen: list[Box] = []
        masks, union = 0, None
        for found in objects:
            mask = decoded_mask(found.mask, size) if found.mask else None
            own = Area.of_boxes([found.box]) if mask is None else Area.of_mask(mask)
            if own.shares(crop, (1, 1)) > 0:
                seen.append(found.box)
                if mask is not None:  # one at a time, to limit memory
                    masks, union = masks + 1, mask if union is None else union | mask
        if not seen:
            return None
        area = Area.of_boxes(seen)
        in_mask = None
        if union is not None and masks == len(seen):
            in_mask = Area.of_mask(union).shares(crop, grid)
        return cls(tuple(seen), area.shares(crop, grid), area.holds(crop, grid), in_mask)


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
        runs = counts if isinstance(counts, list) else _decompressed(counts)
        if not all(type(run) is int and run >= 0 for run in runs) or sum(runs) != width * height:
            raise ValueError
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise InputError(
            f"a segmentation that is neither polygons nor run lengths; {REMEDY}"
        ) from None
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, runs).reshape((height, width), order="F")


def _filled(polygons: list[Any], width: int, height: int) -> Bool[np.ndarray, "H W"]:
    """The pixels inside any of the polygons; raises ValueError if one is malformed."""
    from pycocotools import mask as run_length

    side = max(width, height)
    numbers = []
    for polygon in polygons:
        places = np.array(polygon, dtype=np.float64)
        if places.ndim != 1 or len(places) < 4 or len(places) % 2:
            raise ValueError
        if not ((-side <= places) & (places <= 2 * side)).all():  # rejects NaN too
            raise InputError(
                f"a polygon that leaves a photo of {width} x {height} pixels; {REMEDY}"
            )
        numbers.append(places.tolist())
    if not numbers:
        raise ValueError
    lengths = run_length.merge(run_length.frPyObjects(numbers, height, width))
    return run_length.decode(lengths).astype(bool)


def _decompressed(characters: str | bytes) -> list[int]:
    """Decompress COCO's run lengths; raises ValueError if they are malformed.

    A length is encoded with five bits per character, lowest first. From the fourth length on, the
    difference from the last but one is encoded.
    """
    if not isinstance(characters, bytes):
        characters = characters.encode("ascii")
    runs: list[int] = []
    value, bits = 0, 0
    for character in characters:
        code = character - 48
        if not 0 <= code < 64 or bits > MOST_BITS:
            raise ValueError
        value |= (code & 31) << bits
        bits += 5
        if code & 32:  # more characters of this length follow
            continue
        if code & 16:  # negative
            value -= 1 << bits
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value, bits = 0, 0
    if bits:
        raise ValueError
    return runs


def _overlaps(
    edges: Float[np.ndarray, "edges"], others: Float[np.ndarray, "others"]
) -> Float[np.ndarray, "cells parts"]:
    """The length of the overlap of each interval between `edges` with each between `others`."""
    ends = np.minimum(edges[1:, None], others[None, 1:])
    starts = np.maximum(edges[:-1, None], others[None, :-1])
    return np.maximum(ends - starts, 0.0)
