"""A box around what a map shows, for measures that compare boxes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.ndimage import label

from captioning.evaluation.grounding.areas import Box

SHARE = 0.5
"""The share of a map's maximum that a cell must have to lie in the box."""


def box_of(weights: Float[np.ndarray, "rows columns"], crop: Box) -> Box:
    """The box around the cells that hang together with the maximum, in pixels of the photo.

    As Zhou et al. 2016 do ("Learning Deep Features for Discriminative Localization"), who take a
    fifth of the maximum; half of it is right for coarse maps, which nothing has smoothed.

    Args:
        weights: a map; its first maximum counts.
        crop: the part of the photo that the cells cover.
    """
    parts, _ = label(weights >= SHARE * weights.max())
    rows, columns = np.nonzero(parts == parts.flat[weights.argmax()])
    left, top, across, down = crop
    high, wide = down / weights.shape[0], across / weights.shape[1]
    return (
        float(left + columns.min() * wide),
        float(top + rows.min() * high),
        float((columns.max() + 1 - columns.min()) * wide),
        float((rows.max() + 1 - rows.min()) * high),
    )


def largest_overlap(box: Box, others: Sequence[Box], crop: Box) -> float:
    """The largest intersection over union of a box with any of the others, as far as seen.

    Args:
        box: within the crop.
        others: the part of them beyond the crop does not count.
        crop: what the model saw.
    """
    others = [seen for other in others if (seen := _common(other, crop))[2] * seen[3] > 0]
    overlaps = []
    for other in others:
        _, _, width, height = _common(box, other)
        both = width * height
        overlaps.append(both / (box[2] * box[3] + other[2] * other[3] - both))
    return max(overlaps, default=0.0)


def _common(one: Box, other: Box) -> Box:
    """The intersection, of no size where there is none."""
    left, top = max(one[0], other[0]), max(one[1], other[1])
    right = min(one[0] + one[2], other[0] + other[2])
    bottom = min(one[1] + one[3], other[1] + other[3])
    return left, top, max(right - left, 0.0), max(bottom - top, 0.0)
