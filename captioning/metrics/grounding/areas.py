"""Parts of a photo, such as a box or a mask, measured over the cells of the attention's grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from captioning.data.records import ImageObject
from captioning.errors import InputError

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels of the photo."""


@dataclass(frozen=True)
class Area:
    """A part of a photo: some of the rectangles into which two rows of edges cut it.

    Attributes:
        x: edges from left to right, in pixels of the photo.
        y: edges from top to bottom.
        inside: which of the rectangles between them belong to the part.
    """

    x: Float[np.ndarray, "x_edges"]
    y: Float[np.ndarray, "y_edges"]
    inside: Bool[np.ndarray, "rows columns"]

    @classmethod
    def of_boxes(cls, boxes: Sequence[Box]) -> "Area":
        """What lies in any of the boxes."""
        left, top, width, height = np.array(boxes, dtype=np.float64).T
        right, bottom = left + width, top + height
        x, y = np.unique([left, right]), np.unique([top, bottom])
        middle_x, middle_y = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2
        across = (left[:, None] < middle_x) & (middle_x < right[:, None])
        down = (top[:, None] < middle_y) & (middle_y < bottom[:, None])
        return cls(x, y, (down[:, :, None] & across[:, None, :]).any(axis=0))

    @classmethod
    def of_mask(cls, mask: Bool[np.ndarray, "H W"]) -> "Area":
        """What lies in the pixels of a mask."""
        height, width = mask.shape
        return cls(np.arange(width + 1.0), np.arange(height + 1.0), mask)

    def shares(self, crop: Box, grid: tuple[int, int]) -> Float[np.ndarray, "rows columns"]:
        """The share of each cell's rectangle that lies in this part of the photo.

        Args:
            crop: what the model saw.
            grid: rows and columns of the cells, which cover the crop.
        """
        left, top, across, down = crop
        rows, columns = grid
        vertical = _overlaps(_edges(top, down, rows), self.y) * rows / down
        horizontal = _overlaps(_edges(left, across, columns), self.x) * columns / across
        return vertical @ self.inside.astype(np.float64) @ horizontal.T

    def holds(self, crop: Box, grid: tuple[int, int]) -> Bool[np.ndarray, "rows columns"]:
        """Whether the centre of each cell lies in this part of the photo."""
        left, top, across, down = crop
        rows, columns = grid
        y = np.searchsorted(self.y, _centres(top, down, rows), side="right")
        x = np.searchsorted(self.x, _centres(left, across, columns), side="right")
        return np.pad(self.inside, 1)[y[:, None], x]  # the border is what lies beyond all edges


@dataclass(frozen=True)
class Place:
    """Where the objects of one category are in what a model sees.

    Attributes:
        boxes: of the objects that the crop shows a part of.
        in_box: the share of each cell that lies in any of the boxes.
        box_holds: whether each cell's centre does.
        in_mask: the share of each cell that lies in any of the masks; None where an object has no
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
        """The place of objects; None where the crop shows nothing of them.

        Of an object with a mask it is the mask of which the crop must show something.

        Args:
            objects: of one category.
            size: width and height of the photo in pixels.
            crop: what the model sees of the photo.
            grid: rows and columns of the cells, which cover the crop.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size.
        """
        masks = [decoded(found.mask, size) if found.mask else None for found in objects]
        seen = [
            (found, mask)
            for found, mask in zip(objects, masks, strict=True)
            if (Area.of_boxes([found.box]) if mask is None else Area.of_mask(mask)).shares(
                crop, (1, 1)
            )
            > 0
        ]
        if not seen:
            return None
        boxes = tuple(found.box for found, _ in seen)
        area = Area.of_boxes(boxes)
        known = [mask for _, mask in seen if mask is not None]
        in_mask = None
        if len(known) == len(seen):
            in_mask = Area.of_mask(np.logical_or.reduce(known)).shares(crop, grid)
        return cls(boxes, area.shares(crop, grid), area.holds(crop, grid), in_mask)


def decoded(mask: Any, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """The pixels of COCO's ``segmentation``: polygons, or run lengths, compressed or not.

    Args:
        mask: as read.
        size: width and height of the photo in pixels.

    Raises:
        InputError: it cannot be decoded, or is of a photo of another size.
    """
    from pycocotools import mask as run_length

    width, height = size
    try:
        if isinstance(mask, list):
            lengths = run_length.merge(run_length.frPyObjects(mask, height, width))
        elif isinstance(mask["counts"], list):
            lengths = run_length.frPyObjects(mask, height, width)
        else:
            lengths = mask
        found = run_length.decode(lengths).astype(bool)
    except Exception:  # pycocotools raises nearly anything
        raise InputError(
            "a segmentation that is neither polygons nor run lengths; "
            "leave it out, or write it as COCO does"
        ) from None
    if found.shape != (height, width):
        raise InputError(
            f"a mask of {found.shape[1]} x {found.shape[0]} pixels but a photo of "
            f"{width} x {height}; use the photos that were annotated"
        )
    return found


def _edges(start: float, extent: float, cells: int) -> Float[np.ndarray, "edges"]:
    return start + extent * np.arange(cells + 1) / cells


def _centres(start: float, extent: float, cells: int) -> Float[np.ndarray, "cells"]:
    return start + extent * (np.arange(cells) + 0.5) / cells


def _overlaps(
    edges: Float[np.ndarray, "edges"], others: Float[np.ndarray, "others"]
) -> Float[np.ndarray, "cells parts"]:
    """How much of each interval between `others` lies in each interval between `edges`."""
    ends = np.minimum(edges[1:, None], others[None, 1:])
    starts = np.maximum(edges[:-1, None], others[None, :-1])
    return np.maximum(ends - starts, 0.0)
