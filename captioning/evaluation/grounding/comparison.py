"""How much more faithful one map is than another, of the same words."""

from collections.abc import Sequence

from captioning.evaluation.grounding.estimates import CURVES, Estimate, by_image, with_intervals
from captioning.evaluation.grounding.looks import MODEL, Look


def curve_differences(looks: Sequence[Look], others: Sequence[Look]) -> dict[str, Estimate]:
    """The areas under a map's curves minus those under another's, with their intervals.

    Both maps see the same resamples of the images. Nothing where no curves were computed.

    Args:
        looks: of one map.
        others: of the other map, at the same words in the same order.

    Returns:
        Estimates by the names of the curves; a negative difference of deletion is good.
    """
    if not looks or not looks[0].areas:
        return {}
    pairs = {}
    for curve in CURVES:
        differences = [
            getattr(look.areas[MODEL], curve) - getattr(other.areas[MODEL], curve)
            for look, other in zip(looks, others, strict=True)
        ]
        pairs[curve] = by_image(looks, differences)
    return with_intervals(pairs)
