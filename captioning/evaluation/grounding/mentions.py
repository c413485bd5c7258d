"""The map of a word that names an object, measured against the object's place.

The pointing game is from Zhang et al. 2016 ("Top-down Neural Attention by Excitation Backprop"),
without its tolerance of 15 pixels. The mass in a box or mask is the attention correctness of Liu
et al. 2017 ("Attention Correctness in Neural Image Captioning"). Two baselines that do not depend
on the photo are measured too: a uniform map, and a Gaussian around the middle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from captioning.evaluation.grounding.lexicon import Mention
from captioning.evaluation.grounding.targets import Target

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
