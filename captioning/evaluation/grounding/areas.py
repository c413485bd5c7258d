"""Boxes and masks, measured over the cells of the attention's grid."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding.masks import decoded

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels of the photo."""

MAX_OBJECTS = 1_000
"""The most objects of a category in a photo; n boxes cut it into up to 4 n^2 rectangles."""


@dataclass(frozen=True)
class Area:
    """A part of a photo, as a set of rectangles between horizontal and vertical edges.

    Attributes:
        x: edges from left to right, in pixels of the photo.
        y: edges from top to bottom.
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
        """The share of each cell's rectangle that lies in this part of the photo.

        Args:
            crop: the part of the photo that the model saw.
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
    """The place of a category's objects in the crop that a model sees.

    Attributes:
        boxes: of the objects that are partly inside the crop.
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
        """The place of objects; None if all of them are outside the crop.

        An object with a mask is inside if a part of its mask is, not just of its box.

        Args:
            objects: of one category.
            size: width and height of the photo in pixels.
            crop: the part of the photo that the model sees.
            grid: rows and columns of the cells, which cover the crop.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size, or there are too
                many objects.
        """
        if len(objects) > MAX_OBJECTS:
            raise InputError(
                f"{len(objects)} objects of one category, {objects[0].name}; "
                f"annotate at most {MAX_OBJECTS}"
            )
        seen: list[Box] = []
        masks, union = 0, None
        for found in objects:
            mask = decoded(found.mask, size) if found.mask else None
            own = Area.of_boxes([found.box]) if mask is None else Area.of_mask(mask)
            if own.shares(crop, (1, 1)) > 0:
                seen.append(found.box)
                if mask is not None:  # one at a time, since all at once would fill the memory
                    masks, union = masks + 1, mask if union is None else union | mask
        if not seen:
            return None
        area = Area.of_boxes(seen)
        in_mask = None
        if union is not None and masks == len(seen):
            in_mask = Area.of_mask(union).shares(crop, grid)
        return cls(tuple(seen), area.shares(crop, grid), area.holds(crop, grid), in_mask)


def _edges(start: float, extent: float, cells: int) -> Float[np.ndarray, "edges"]:
    return start + extent * np.arange(cells + 1) / cells


def _centres(start: float, extent: float, cells: int) -> Float[np.ndarray, "cells"]:
    return start + extent * (np.arange(cells) + 0.5) / cells


def _overlaps(
    edges: Float[np.ndarray, "edges"], others: Float[np.ndarray, "others"]
) -> Float[np.ndarray, "cells parts"]:
    """The length of the overlap of each interval between `others` with each between `edges`."""
    ends = np.minimum(edges[1:, None], others[None, 1:])
    starts = np.maximum(edges[:-1, None], others[None, :-1])
    return np.maximum(ends - starts, 0.0)
