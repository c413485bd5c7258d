"""Where objects are in the cells of a map's grid, and how much of a word's map is there.

The pointing game is from Zhang et al. 2016 ("Top-down Neural Attention by Excitation Backprop"),
without its tolerance of 15 pixels. The mass in a box or mask is the attention correctness of Liu
et al. 2017 ("Attention Correctness in Neural Image Captioning"). Two baselines that do not depend
on the photo are measured too: a uniform map, and a Gaussian around the middle.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from captioning.data.framing import Box
from captioning.data.records import ImageObject
from captioning.errors import InputError, format_value
from captioning.evaluation.grounding.lexicon import Mention

SIGMA = 0.25
"""Standard deviation of the Gaussian baseline along each axis, in sides of the crop."""

SOURCES = ("model", "uniform", "Gaussian")
"""Sources of a map: the model and two baselines. Curves have a third baseline, "random"."""

MEASURES = ("pointing", "mass in box", "mass in mask")
FAITHFULNESS = ("deletion", "insertion", "overall")

ATTENDED = "fall without the most attended regions"
AT_RANDOM = "fall without random regions"
CENTRED = "fall without regions in the middle"
DROPS = ("probability", ATTENDED, AT_RANDOM, CENTRED)

Weights = Float[np.ndarray, "rows columns"]


def score_name(measure: str, source: str) -> str:
    """Name a measure of a source; the source is omitted for the model."""
    return measure if source == "model" else f"{measure}, {source}"


Edges = tuple[Float[np.ndarray, " row_edges"], Float[np.ndarray, " column_edges"]]
"""Edges of the cells of a grid, in pixels of the photo."""

RUN_LENGTHS = re.compile("(?:[P-o]{,5}[0-O])+")
"""COCO's compressed run lengths; pycocotools reads beyond the end of malformed ones."""


@dataclass(frozen=True)
class Area:
    """A region of a photo, as a set of rectangles between horizontal and vertical edges.

    Attributes:
        x: the edges from left to right, in pixels of the photo.
        y: the edges from top to bottom.
        inside: whether each rectangle between the edges belongs to the region.
    """

    x: Float[np.ndarray, " x_edges"]
    y: Float[np.ndarray, " y_edges"]
    inside: Bool[np.ndarray, "rows columns"]

    @classmethod
    def of_boxes(cls, boxes: Sequence[Box]) -> "Area":
        """Build the union of boxes."""
        left, top, width, height = np.array(boxes, dtype=np.float64).T
        x, y = np.unique([left, left + width]), np.unique([top, top + height])
        columns = np.searchsorted(x, [left, left + width]).T
        rows = np.searchsorted(y, [top, top + height]).T
        inside = np.zeros((len(y) - 1, len(x) - 1), dtype=bool)
        for across, down in zip(columns, rows, strict=True):
            inside[slice(*down), slice(*across)] = True
        return cls(x, y, inside)

    @classmethod
    def of_mask(cls, mask: Bool[np.ndarray, "H W"]) -> "Area":
        """Build the area of the pixels of a mask."""
        height, width = mask.shape
        return cls(np.arange(width + 1.0), np.arange(height + 1.0), mask)

    def shares(self, cells: Edges) -> Float[np.ndarray, "rows columns"]:
        """Compute the share of each cell that lies in the area."""
        row_edges, column_edges = cells
        vertical, horizontal = _overlaps(row_edges, self.y), _overlaps(column_edges, self.x)
        return vertical @ self.inside.astype(np.float64) @ horizontal.T

    def contains_centres(self, cells: Edges) -> Bool[np.ndarray, "rows columns"]:
        """Test whether each cell's centre is in the area, without its right and lower edges."""
        row_edges, column_edges = cells
        rows = np.searchsorted(self.y, (row_edges[1:] + row_edges[:-1]) / 2, "right")
        columns = np.searchsorted(self.x, (column_edges[1:] + column_edges[:-1]) / 2, "right")
        return np.pad(self.inside, 1)[np.ix_(rows, columns)]


def _overlaps(
    cells: Float[np.ndarray, " cell_edges"], intervals: Float[np.ndarray, " interval_edges"]
) -> Float[np.ndarray, "cells intervals"]:
    """Compute the share of each cell along an axis that lies in each interval."""
    lengths = np.diff(cells[:, None].clip(intervals[:-1], intervals[1:]), axis=0)
    return lengths / np.maximum(np.diff(cells), 1e-9)[:, None]


def cell_edges(
    crop: Box, grid: tuple[int, int], cell_offset: tuple[float, float] = (0.0, 0.0)
) -> Edges:
    """Compute the edges of the cells of a grid over a crop.

    Edges inside the crop are moved by an offset in rows and columns (`Encoder.cell_offset`), the
    outermost ones are not.
    """
    left, top, width, height = crop
    rows, columns = grid
    row_offset, column_offset = cell_offset
    return (
        _axis_edges(rows, start=top, extent=height, offset=row_offset),
        _axis_edges(columns, start=left, extent=width, offset=column_offset),
    )


def _axis_edges(
    cells: int, *, start: float, extent: float, offset: float
) -> Float[np.ndarray, " edges"]:
    inner = (np.arange(1, cells) + offset).clip(0, cells)
    return start + extent * np.array([0, *inner, cells]) / cells


class Coverage(NamedTuple):
    """How the boxes and masks of a category's objects cover the cells of a grid.

    Attributes:
        box_shares: the share of each cell that lies in any of the boxes.
        mask_shares: the share of each cell that lies in any of the masks; None if an object has no
            mask.
        has_box_at_centre: whether each cell's centre lies in any of the boxes.
    """

    box_shares: Float[np.ndarray, "rows columns"]
    mask_shares: Float[np.ndarray, "rows columns"] | None
    has_box_at_centre: Bool[np.ndarray, "rows columns"]

    @classmethod
    def of(cls, boxes: Area, masks: Area | None, cells: Edges) -> "Coverage":
        """Compute the coverage of cells by the union of the boxes and that of the masks."""
        mask_shares = None if masks is None else masks.shares(cells)
        return cls(boxes.shares(cells), mask_shares, boxes.contains_centres(cells))


@dataclass(frozen=True)
class Target:
    """Where a category's objects are in the crop that a model sees.

    Attributes:
        crop: the part of the photo that the model sees; the cells of the grid cover it.
        boxes: the boxes of the objects that are at least partly inside the crop.
        covers_middle: whether one of the boxes contains the middle of the crop.
        cell_offset: of the cells, in rows and columns; see `cell_edges`.
        coverage: of the cells with `cell_offset`.
        unshifted_coverage: of the cells without it.
    """

    crop: Box
    boxes: tuple[Box, ...]
    covers_middle: bool
    cell_offset: tuple[float, float]
    coverage: Coverage
    unshifted_coverage: Coverage

    @classmethod
    def of(
        cls,
        objects: Sequence[ImageObject],
        *,
        size: tuple[int, int],
        crop: Box,
        grid: tuple[int, int],
        cell_offset: tuple[float, float] = (0.0, 0.0),
    ) -> "Target | None":
        """Locate a category's objects; returns None if all of them are outside the crop.

        An object with a mask is inside if a part of its mask is, not just of its box.

        Args:
            objects: of one category.
            size: width and height of the photo in pixels.
            crop: the part of the photo that the model sees.
            grid: rows and columns of cells.
            cell_offset: of the cells, in rows and columns.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size.
        """
        crop_edges = cell_edges(crop, (1, 1))
        boxes: list[Box] = []
        masks: list[Bool[np.ndarray, "H W"]] = []
        for image_object in objects:
            mask = decoded_mask(image_object.mask, size) if image_object.mask else None
            area = Area.of_boxes([image_object.box]) if mask is None else Area.of_mask(mask)
            if area.shares(crop_edges) > 0:
                boxes.append(image_object.box)
                if mask is not None:
                    masks.append(mask)
        if not boxes:
            return None
        boxes_area = Area.of_boxes(boxes)
        have_masks = len(masks) == len(boxes)
        masks_area = Area.of_mask(np.any(masks, axis=0)) if have_masks else None
        return cls(
            crop=crop,
            boxes=tuple(boxes),
            covers_middle=bool(boxes_area.contains_centres(crop_edges)),
            cell_offset=cell_offset,
            coverage=Coverage.of(boxes_area, masks_area, cell_edges(crop, grid, cell_offset)),
            unshifted_coverage=Coverage.of(boxes_area, masks_area, cell_edges(crop, grid)),
        )


def decoded_mask(mask: Any, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """Decode COCO's ``segmentation``: polygons, or run lengths, compressed or not.

    Args:
        mask: the segmentation, as read from JSON.
        size: width and height of the photo in pixels.

    Raises:
        InputError: the mask cannot be decoded, or is of a photo of another size.
    """
    from pycocotools import mask as run_length

    width, height = size
    try:
        if isinstance(mask, list):
            corners, side = np.concatenate(mask), max(width, height)
            if not ((-side <= corners) & (corners <= 2 * side)).all():  # false for NaN
                raise ValueError
            lengths = run_length.merge(run_length.frPyObjects(mask, height, width))
        elif mask["size"] != [height, width]:
            raise InputError(
                f"a mask of {format_value(mask['size'])} (height, width) but a photo of "
                f"{width} x {height} pixels; use the photos that were annotated"
            )
        elif isinstance(mask["counts"], list):
            if sum(mask["counts"]) != width * height:
                raise ValueError
            lengths = run_length.frPyObjects(mask, height, width)
        else:
            text = mask["counts"] if isinstance(mask["counts"], str) else mask["counts"].decode()
            if not RUN_LENGTHS.fullmatch(text):
                raise ValueError
            lengths = mask
        return run_length.decode(lengths).astype(bool)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise InputError(
            "a segmentation that is neither polygons in the photo nor its run lengths; omit it, or "
            "write it as COCO does"
        ) from None


@dataclass(frozen=True)
class GroundedMention:
    """Words that name an object in the photo, with their map and its scores.

    Attributes:
        image_id: that of the record.
        image: the path of the photo.
        caption: the index of the caption among the image's captions.
        mention: the words, and the category that they name.
        target: where the category's objects are.
        weights: the map over a grid of cells; for several words, the mean of their maps.
        values: the measures of `map_values` by their names, and those of `occlusion_drops` and
            `curve_areas` if they have been computed.
    """

    image_id: int | str
    image: Path
    caption: int
    mention: Mention
    target: Target
    weights: Weights
    values: dict[str, float]

    @property
    def gain(self) -> float:
        """The mass in the boxes, minus that of the uniform map."""
        return self.values["mass in box"] - self.values["mass in box, uniform"]

    @property
    def size_share(self) -> float:
        """The share of the crop that the boxes cover."""
        return float(self.target.unshifted_coverage.box_shares.mean())


OFF_MIDDLE = "not in the middle"
OBJECT_GROUPS: dict[str, Callable[[GroundedMention], bool]] = {
    OFF_MIDDLE: lambda mention: not mention.target.covers_middle,
    "small, below 1/16": lambda mention: mention.size_share < 1 / 16,
    "medium": lambda mention: 1 / 16 <= mention.size_share < 1 / 4,
    "large, from 1/4": lambda mention: mention.size_share >= 1 / 4,
}
"""Conditions for groups of objects, by position and by size as a share of the crop."""


def map_values(weights: Weights, target: Target) -> dict[str, float]:
    """Compute the `MEASURES` of a map and of two baselines, a uniform map and a Gaussian.

    Pointing is 1 if the centre of the cell with the largest weight is inside a box, else 0; if
    several cells tie, the share of them that is inside. Mass is the share of the weights that lies
    inside, each spread evenly over its cell; mass in mask is omitted without masks. Only the cells
    of the model's map have the target's `cell_offset`.
    """
    grid = weights.shape
    uniform = np.full(grid, 1 / np.prod(grid))
    maps = dict(zip(SOURCES, (weights, uniform, gaussian(grid)), strict=True))
    values = {}
    for source, source_map in maps.items():
        coverage = target.coverage if source == "model" else target.unshifted_coverage
        is_peak = source_map == source_map.max()
        values[score_name("pointing", source)] = float(coverage.has_box_at_centre[is_peak].mean())
        values[score_name("mass in box", source)] = float((source_map * coverage.box_shares).sum())
        if coverage.mask_shares is not None:
            mass = (source_map * coverage.mask_shares).sum()
            values[score_name("mass in mask", source)] = float(mass)
    return values


def gaussian(grid: tuple[int, ...]) -> Weights:
    """Return a normal density of width `SIGMA` around the middle of the crop, with sum 1."""
    rows, columns = grid
    weights: Weights = np.outer(_density(rows), _density(columns))
    return weights / weights.sum()


def _density(cells: int) -> Float[np.ndarray, " cells"]:
    # In whole numbers, so that cells at equal distances from the middle have equal weights.
    distances = 2 * np.arange(cells) + 1 - cells
    return np.exp(-0.5 * (distances / (2 * cells * SIGMA)) ** 2)
