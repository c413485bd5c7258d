"""Looks: the attention while a model named an object, measured against the object's place.

The pointing game is from Zhang et al. 2016 ("Top-down Neural Attention by Excitation Backprop"),
without its tolerance of 15 pixels; the mass in a box or mask is the attention correctness of Liu
et al. 2017 ("Attention Correctness in Neural Image Captioning"). Two baselines that do not depend
on the photo are measured as well: uniform attention, and a centred Gaussian.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.lib.stride_tricks import sliding_window_view

from captioning.evaluation.grounding.areas import Box, Place
from captioning.evaluation.grounding.lexicon import Mention

SIGMA = 0.25
"""Standard deviation of the Gaussian baseline along each axis, in sides of the crop."""

POINTING, IN_BOX, IN_MASK = MEASURES = ("pointing", "mass in box", "mass in mask")
MODEL, UNIFORM, GAUSSIAN = SOURCES = ("model", "uniform", "Gaussian")

Weights = Float[np.ndarray, "rows columns"]


class OcclusionDrops(NamedTuple):
    """The probability of a mention's words, and its drop when regions are hidden.

    Attributes:
        probability: of the words, given the photo and all words before them.
        attended: the drop without the most attended regions.
        random: the mean drop without equally many random regions, the baseline.
    """

    probability: float
    attended: float
    random: float


@dataclass(frozen=True)
class Look:
    """The attention while the model wrote the words that name an object in the photo.

    Attributes:
        image_id: of the record.
        image: path of the photo.
        mention: the words, and the category that they name.
        weights: attention over the grid of cells; for a mention of several words, the mean of their
            maps, since all of them name the object.
        place: the place of the category's objects.
        crop: the part of the photo that the model saw, in pixels; the cells cover it.
        size: width and height of the photo in pixels.
        drops: the drops by occlusion; None if they were not computed.
    """

    image_id: int | str
    image: Path
    mention: Mention
    weights: Weights
    place: Place
    crop: Box
    size: tuple[int, int]
    drops: OcclusionDrops | None = None

    @cached_property
    def scores(self) -> Mapping[str, dict[str, float]]:
        """For each attention by name, its measures by name; NaN for masks if there are none."""
        return {
            MODEL: _scores(self.weights, self.place),
            UNIFORM: _scores(uniform(self.weights.shape), self.place),
            GAUSSIAN: _scores(gaussian(self.weights.shape), self.place),
        }

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
