"""Where objects are in the cells of a map's grid, and what of a word's map is there.

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
from captioning.errors import InputError, shown
from captioning.evaluation.grounding.lexicon import Mention

SIGMA = 0.25
"""Standard deviation of the Gaussian baseline along each axis, in sides of the crop."""

SOURCES = ("model", "uniform", "Gaussian")
"""What gives a map: the model and two baselines. The curves have a random one, "random", too."""

MEASURES = ("pointing", "mass in box", "mass in mask")
FAITHFULNESS = ("deletion", "insertion", "overall")

ATTENDED = "fall without the most attended regions"
AT_RANDOM = "fall without random regions"
CENTRED = "fall without regions in the middle"
DROPS = ("probability", ATTENDED, AT_RANDOM, CENTRED)

Weights = Float[np.ndarray, "rows columns"]


def named(measure: str, source: str) -> str:
    """The name of a measure of a source; the source is omitted for the model."""
    return measure if source == "model" else f"{measure}, {source}"


Edges = tuple[Float[np.ndarray, "row_edges"], Float[np.ndarray, "column_edges"]]
"""Of the cells of a grid, in pixels of the photo."""

RUN_LENGTHS = re.compile("(?:[P-o]{,5}[0-O])+")
"""COCO's compressed run lengths; pycocotools reads beyond the end of others."""


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
        columns = np.searchsorted(x, [left, left + width]).T
        rows = np.searchsorted(y, [top, top + height]).T
        inside = np.zeros((len(y) - 1, len(x) - 1), dtype=bool)
        for across, down in zip(columns, rows, strict=True):
            inside[slice(*down), slice(*across)] = True
        return cls(x, y, inside)

    @classmethod
    def of_mask(cls, mask: Bool[np.ndarray, "H W"]) -> "Area":
        """The pixels of a mask."""
        height, width = mask.shape
        return cls(np.arange(width + 1.0), np.arange(height + 1.0), mask)

    def shares(self, cells: Edges) -> Float[np.ndarray, "rows columns"]:
        """The share of each cell that lies in the area."""
        vertical, horizontal = (
            np.diff(edges[:, None].clip(others[:-1], others[1:]), axis=0)
            / np.maximum(np.diff(edges), 1e-9)[:, None]
            for edges, others in zip(cells, (self.y, self.x), strict=True)
        )
        return vertical @ self.inside.astype(np.float64) @ horizontal.T

    def holds_centres(self, cells: Edges) -> Bool[np.ndarray, "rows columns"]:
        """Whether each cell's centre lies in the area, without its right and lower edges."""
        places = (
            np.searchsorted(others, (edges[1:] + edges[:-1]) / 2, "right")
            for edges, others in zip(cells, (self.y, self.x), strict=True)
        )
        return np.pad(self.inside, 1)[np.ix_(*places)]


def cell_edges(crop: Box, grid: tuple[int, int], offset: tuple[float, float] = (0.0, 0.0)) -> Edges:
    """The edges of the cells of a grid over a crop.

    They are moved by an offset in rows and columns (`Encoder.cell_offset`); the outermost ones
    still reach to the edges of the crop.
    """
    left, top, across, down = crop
    found = []
    for start, extent, cells, moved in zip((top, left), (down, across), grid, offset, strict=True):
        inner = (np.arange(1, cells) + moved).clip(0, cells)
        found.append(start + extent * np.array([0, *inner, cells]) / cells)
    rows, columns = found
    return rows, columns


class Cells(NamedTuple):
    """What the cells of a grid show of a category's objects.

    Attributes:
        in_box: the share of each cell that lies in any of the boxes.
        in_mask: the share of each cell that lies in any of the masks; None if an object has no
            mask.
        held: whether each cell's centre lies in any of the boxes.
    """

    in_box: Float[np.ndarray, "rows columns"]
    in_mask: Float[np.ndarray, "rows columns"] | None
    held: Bool[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class Target:
    """Where a category's objects are in the crop that a model sees.

    Attributes:
        crop: what the model sees; the cells of the grid cover it.
        boxes: the boxes of the objects that are at least partly inside the crop.
        covers_middle: whether one of the boxes contains the middle of the crop.
        offset: of the cells, as `cell_edges` takes it.
        cells: those with the offset.
        still: those without it.
    """

    crop: Box
    boxes: tuple[Box, ...]
    covers_middle: bool
    offset: tuple[float, float]
    cells: Cells
    still: Cells

    @classmethod
    def of(
        cls,
        objects: Sequence[ImageObject],
        size: tuple[int, int],
        crop: Box,
        grid: tuple[int, int],
        offset: tuple[float, float] = (0.0, 0.0),
    ) -> "Target | None":
        """The target of a category's objects; None if all of them are outside the crop.

        An object with a mask is inside if a part of its mask is, not just of its box. `size` is
        width and height of the photo in pixels. Raises InputError as `decoded_mask`.
        """
        boxes, masks, whole = [], [], cell_edges(crop, (1, 1))
        for each in objects:
            outline = decoded_mask(each.mask, size) if each.mask else None
            area = Area.of_boxes([each.box]) if outline is None else Area.of_mask(outline)
            if area.shares(whole) > 0:
                boxes.append(each.box)
                masks.append(outline)
        if not boxes:
            return None
        box, known = Area.of_boxes(boxes), [its for its in masks if its is not None]
        mask = Area.of_mask(np.any(known, axis=0)) if len(known) == len(boxes) else None
        cells, still = (
            Cells(box.shares(edges), mask.shares(edges) if mask else None, box.holds_centres(edges))
            for edges in (cell_edges(crop, grid, offset), cell_edges(crop, grid))
        )
        return cls(crop, tuple(boxes), bool(box.holds_centres(whole)), offset, cells, still)


def decoded_mask(mask: Any, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """The pixels of COCO's ``segmentation``: polygons, or run lengths, compressed or not.

    `size` is width and height of the photo.

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
                f"a mask of {shown(mask['size'])} (height, width) but a photo of "
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
    """The map of the words that name an object in the photo.

    Attributes:
        image_id: of the record.
        image: the path of the photo.
        caption: the index of the caption among the image's captions.
        mention: the words, and the category that they name.
        target: where the category's objects are.
        weights: the map over a grid of cells; for several words, the mean of their maps.
        values: the measures of `map_values`, `occlusion_drops` and `curve_areas` by their names, as
            far as they are known.
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
        """The mass in the box, minus that of the uniform map."""
        return self.values["mass in box"] - self.values["mass in box, uniform"]

    @property
    def size_share(self) -> float:
        """The share of the crop that the boxes cover."""
        return float(self.target.still.in_box.mean())


OFF_MIDDLE = "not in the middle"
KINDS: dict[str, Callable[[GroundedMention], bool]] = {
    OFF_MIDDLE: lambda mention: not mention.target.covers_middle,
    "small, below 1/16": lambda mention: mention.size_share < 1 / 16,
    "medium": lambda mention: 1 / 16 <= mention.size_share < 1 / 4,
    "large, from 1/4": lambda mention: mention.size_share >= 1 / 4,
}
"""Kinds of objects by position, and by size as a share of the crop."""


def map_values(weights: Weights, target: Target) -> dict[str, float]:
    """The `MEASURES` of a map and of the two baselines; mass in mask only if there are masks.

    Pointing is 1 if the centre of the cell with the largest weight is inside a box, else 0; if
    several cells tie, the share of them that is inside. Mass is the share of the weights that lies
    inside, each spread evenly over its cell. The cells of the map have the target's offset.
    """
    grid = weights.shape
    maps = weights, np.full(grid, 1 / np.prod(grid)), gaussian(grid)
    found = {}
    for source, its in zip(SOURCES, maps, strict=True):
        place = target.cells if source == "model" else target.still
        found[named("pointing", source)] = float(place.held[its == its.max()].mean())
        found[named("mass in box", source)] = float((its * place.in_box).sum())
        if place.in_mask is not None:
            found[named("mass in mask", source)] = float((its * place.in_mask).sum())
    return found


def gaussian(grid: tuple[int, ...]) -> Weights:
    """A normal density of width `SIGMA` around the middle of the crop, with sum 1."""
    # In whole numbers, so that cells at equal distances from the middle have equal weights.
    vertical, horizontal = (
        np.exp(-0.5 * ((2 * np.arange(cells) + 1 - cells) / (2 * cells * SIGMA)) ** 2)
        for cells in grid
    )
    weights: Weights = np.outer(vertical, horizontal)
    return weights / weights.sum()
