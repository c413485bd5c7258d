"""Looks: the attention while a model named an object, measured against the object's place.

The pointing game is from Zhang et al. 2016 ("Top-down Neural Attention by Excitation Backprop"),
without its tolerance of 15 pixels; the mass in a box or mask is the attention correctness of Liu
et al. 2017 ("Attention Correctness in Neural Image Captioning"). Two baselines that do not depend
on the photo are measured as well: uniform attention, and a centred Gaussian.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.lib.stride_tricks import sliding_window_view

from captioning.evaluation.grounding.areas import Box, Place
from captioning.evaluation.grounding.boxes import box_of, largest_overlap
from captioning.evaluation.grounding.lexicon import Mention

SIGMA = 0.25
"""Standard deviation of the Gaussian baseline along each axis, in sides of the crop."""

OVERLAP = 0.5
"""The intersection over union above which two boxes are the same thing."""

POINTING, IN_BOX, IN_MASK = MEASURES = ("pointing", "mass in box", "mass in mask")
MODEL, UNIFORM, GAUSSIAN = SOURCES = ("model", "uniform", "Gaussian")
RANDOM = "random"

Weights = Float[np.ndarray, "rows columns"]


class Areas(NamedTuple):
    """Areas under the curves of a mention's probability, over a width of one.

    Attributes:
        deletion: while the regions are hidden, the most relevant first; low is good.
        insertion: while they are shown, the most relevant first; high is good.
    """

    deletion: float
    insertion: float

    @property
    def overall(self) -> float:
        """Insertion minus deletion: faithfulness in one number (Zhang et al. 2021, "Group-CAM")."""
        return self.insertion - self.deletion


class OcclusionDrops(NamedTuple):
    """The probability of a mention's words, and its drop when regions are hidden.

    Attributes:
        probability: of the words, given the photo and all words before them.
        attended: the drop without the most attended regions.
        random: the mean drop without equally many random regions, a baseline.
        centred: the drop without the regions in the middle that hold as much of the Gaussian.
    """

    probability: float
    attended: float
    random: float
    centred: float


@dataclass(frozen=True)
class Look:
    """The attention while the model wrote the words that name an object in the photo.

    Attributes:
        image_id: of the record.
        image: path of the photo.
        mention: the words, and the category that they name.
        weights: attention over the grid of cells, or another map of the word; for a mention of
            several words, the mean of their maps, since all of them name the object.
        place: the place of the category's objects.
        crop: the part of the photo that the model saw, in pixels; the cells cover it.
        size: width and height of the photo in pixels.
        drops: the drops by occlusion; None if they were not computed.
        caption: which of the image's captions it is from.
        areas: areas under the deletion and insertion curves, of the map, of the Gaussian and of
            regions in random order; empty if they were not computed.
    """

    image_id: int | str
    image: Path
    mention: Mention
    weights: Weights
    place: Place
    crop: Box
    size: tuple[int, int]
    drops: OcclusionDrops | None = None
    caption: int = 0
    areas: Mapping[str, Areas] = field(default_factory=dict)

    @cached_property
    def maps(self) -> Mapping[str, Weights]:
        """The map, and those of the two baselines on its grid."""
        grid = self.weights.shape
        return {MODEL: self.weights, UNIFORM: uniform(grid), GAUSSIAN: gaussian(grid)}

    @cached_property
    def scores(self) -> Mapping[str, dict[str, float]]:
        """For each attention by name, its measures by name; NaN for masks if there are none."""
        return {source: _scores(weights, self.place) for source, weights in self.maps.items()}

    @cached_property
    def localised(self) -> Mapping[str, float]:
        """For each attention by name, 1 if the box around its maximum fits an object's, else 0.

        It does where the intersection is more than `OVERLAP` of the union.
        """
        return {
            source: float(
                largest_overlap(box_of(weights, self.crop), self.place.boxes, self.crop) > OVERLAP
            )
            for source, weights in self.maps.items()
        }

    @property
    def covers_middle(self) -> bool:
        """Whether one of the boxes holds the middle of the crop, where a Gaussian always points."""
        left, top, across, down = self.crop
        x, y = left + across / 2, top + down / 2
        return any(
            a <= x < a + width and b <= y < b + height for a, b, width, height in self.place.boxes
        )

    @property
    def size_share(self) -> float:
        """The share of the crop that the boxes cover."""
        return float(self.place.in_box.mean())

    @property
    def distance(self) -> float:
        """From the middle of the crop to the centre of mass of the boxes, in sides of the crop."""
        shares = self.place.in_box / self.place.in_box.sum()
        rows, columns = shares.shape
        across = shares.sum(axis=0) @ ((np.arange(columns) + 0.5) / columns - 0.5)
        down = shares.sum(axis=1) @ ((np.arange(rows) + 0.5) / rows - 0.5)
        return float(np.hypot(across, down))

    @property
    def gain(self) -> float:
        """The attention in the box, minus that of uniform attention."""
        return self.scores[MODEL][IN_BOX] - self.scores[UNIFORM][IN_BOX]

    @property
    def is_near(self) -> bool:
        """Whether a maximum is on or next to a cell that counts as a hit in the pointing game."""
        windows = sliding_window_view(np.pad(self.place.box_holds, 1), (3, 3))
        return pointing(self.weights, np.asarray(windows.any(axis=(2, 3)))) > 0

    @property
    def offset(self) -> tuple[float, float] | None:
        """From the centre of the box to the attention's centre of mass, right and down, in cells.

        The box is clipped to the crop. None if there are several objects of the category.
        """
        if len(self.place.boxes) != 1:
            return None
        rows, columns = self.weights.shape
        left, top, width, height = self.place.boxes[0]
        crop_left, crop_top, across, down = self.crop
        seen_x = np.clip([left, left + width], crop_left, crop_left + across).mean()
        seen_y = np.clip([top, top + height], crop_top, crop_top + down).mean()
        x = self.weights.sum(axis=0) @ (np.arange(columns) + 0.5)
        y = self.weights.sum(axis=1) @ (np.arange(rows) + 0.5)
        return (
            float(x - (seen_x - crop_left) / across * columns),
            float(y - (seen_y - crop_top) / down * rows),
        )


def pointing(weights: Weights, holds: Bool[np.ndarray, "rows columns"]) -> float:
    """The pointing game: 1 if the centre of the cell with the largest weight is inside, else 0.

    If several cells tie for the largest weight, the share of them that is inside.
    """
    return float(holds[weights == weights.max()].mean())


def mass(weights: Weights, shares: Weights) -> float:
    """The share of the weights that lies inside, each spread evenly over its cell."""
    return float((weights * shares).sum())


def uniform(grid: tuple[int, ...]) -> Weights:
    """The same weight everywhere; its mass in a box is the box's share of the crop."""
    return np.full(grid, 1 / np.prod(grid))


def gaussian(grid: tuple[int, ...]) -> Weights:
    """A normal density of `SIGMA` around the middle of the crop, summing to one."""
    # In whole numbers, so that cells at equal distances from the middle have equal weights.
    vertical, horizontal = (
        np.exp(-0.5 * ((2 * np.arange(cells) + 1 - cells) / (2 * cells * SIGMA)) ** 2)
        for cells in grid
    )
    weights: Weights = np.outer(vertical, horizontal)
    return weights / weights.sum()


def _scores(weights: Weights, place: Place) -> dict[str, float]:
    return {
        POINTING: pointing(weights, place.box_holds),
        IN_BOX: mass(weights, place.in_box),
        IN_MASK: np.nan if place.in_mask is None else mass(weights, place.in_mask),
    }
