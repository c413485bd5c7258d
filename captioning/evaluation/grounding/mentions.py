"""The map of a word that names an object, measured against the object's place.

The pointing game is from Zhang et al. 2016 ("Top-down Neural Attention by Excitation Backprop"),
without its tolerance of 15 pixels. The mass in a box or mask is the attention correctness of Liu
et al. 2017 ("Attention Correctness in Neural Image Captioning"). Two baselines that do not depend
on the photo are measured too: a uniform map, and a Gaussian around the middle.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from captioning.evaluation.grounding.areas import Box, Place
from captioning.evaluation.grounding.lexicon import Mention

SIGMA = 0.25
"""Standard deviation of the Gaussian baseline along each axis, in sides of the crop."""

POINTING, IN_BOX, IN_MASK = MEASURES = ("pointing", "mass in box", "mass in mask")
MODEL, UNIFORM, GAUSSIAN = SOURCES = ("model", "uniform", "Gaussian")
RANDOM = "random"

Weights = Float[np.ndarray, "rows columns"]


class CurveAreas(NamedTuple):
    """CurveAreas under the curves of a mention's probability, over a width of one.

    Attributes:
        deletion: while regions are hidden, the most relevant first; low is good.
        insertion: while regions are shown, the most relevant first; high is good.
    """

    deletion: float
    insertion: float

    @property
    def overall(self) -> float:
        """Insertion minus deletion: faithfulness in one number (Zhang et al. 2021, "Group-CAM")."""
        return self.insertion - self.deletion


class OcclusionDrops(NamedTuple):
    """The probability of a mention's words, and how much it drops without some regions.

    Attributes:
        probability: given the photo and all words before them.
        attended: the drop without the most relevant regions.
        random: the mean drop without equally many random regions.
        centred: the drop without the middle regions that hold as much of the Gaussian.
    """

    probability: float
    attended: float
    random: float
    centred: float


@dataclass(frozen=True)
class GroundedMention:
    """The map of the words that name an object in the photo.

    Attributes:
        image_id: of the record.
        image: the path of the photo.
        mention: the words, and the category that they name.
        weights: the map over a grid of cells; for several words, the mean of their maps.
        place: where the category's objects are.
        crop: the part of the photo that the model saw, in pixels; the cells cover it.
        size: width and height of the photo in pixels.
        drops: None if they were not computed.
        caption: the index of the caption among the image's captions.
        areas: of the map, of the Gaussian and of a random order; empty if they were not computed.
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
    areas: Mapping[str, CurveAreas] = field(default_factory=dict)

    @cached_property
    def maps(self) -> Mapping[str, Weights]:
        """The model's map and those of the two baselines, by source."""
        grid = self.weights.shape
        return {MODEL: self.weights, UNIFORM: uniform(grid), GAUSSIAN: gaussian(grid)}

    @cached_property
    def scores(self) -> Mapping[str, dict[str, float]]:
        """The measures of each source by name; mass in mask is NaN if there are no masks."""
        return {
            source: {
                POINTING: pointing(weights, self.place.box_holds),
                IN_BOX: mass(weights, self.place.in_box),
                IN_MASK: mass(weights, self.place.in_mask),
            }
            for source, weights in self.maps.items()
        }

    @property
    def covers_middle(self) -> bool:
        """Whether one of the boxes contains the middle of the crop, where a Gaussian points."""
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
    def gain(self) -> float:
        """The mass in the box, minus that of the uniform map."""
        return self.scores[MODEL][IN_BOX] - self.scores[UNIFORM][IN_BOX]


KINDS: dict[str, Callable[[GroundedMention], bool]] = {
    "not in the middle": lambda mention: not mention.covers_middle,
    "small, below 1/16": lambda mention: mention.size_share < 1 / 16,
    "medium": lambda mention: 1 / 16 <= mention.size_share < 1 / 4,
    "large, from 1/4": lambda mention: mention.size_share >= 1 / 4,
}
"""Kinds of objects by position, and by size as a share of the crop."""


def pointing(weights: Weights, holds: Bool[np.ndarray, "rows columns"]) -> float:
    """The pointing game: 1 if the centre of the cell with the largest weight is inside, else 0.

    If several cells tie for the largest weight, the share of them that is inside.
    """
    return float(holds[weights == weights.max()].mean())


def mass(weights: Weights, shares: Weights | None) -> float:
    """The share of the weights that lies inside, each spread evenly over its cell; NaN for None."""
    return np.nan if shares is None else float((weights * shares).sum())


def uniform(grid: tuple[int, ...]) -> Weights:
    """The same weight everywhere; its mass in a box is the box's share of the crop."""
    return np.full(grid, 1 / np.prod(grid))


def gaussian(grid: tuple[int, ...]) -> Weights:
    """A normal density of width `SIGMA` around the middle of the crop, with sum 1."""
    # In whole numbers, so that cells at equal distances from the middle have equal weights.
    vertical, horizontal = (
        np.exp(-0.5 * ((2 * np.arange(cells) + 1 - cells) / (2 * cells * SIGMA)) ** 2)
        for cells in grid
    )
    weights: Weights = np.outer(vertical, horizontal)
    return weights / weights.sum()
