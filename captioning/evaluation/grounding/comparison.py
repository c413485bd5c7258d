"""How much more faithful one map is than another, of the same words."""

from collections.abc import Sequence

from captioning.evaluation.grounding.estimates import (
    FAITHFULNESS,
    Estimate,
    by_image,
    with_intervals,
)
from captioning.evaluation.grounding.looks import MODEL, Look


def curve_differences(looks: Sequence[Look], others: Sequence[Look]) -> dict[str, Estimate]:
    """The areas under a map's curves, and their difference, minus another map's; with intervals.

    Both maps see the same resamples of the images. Nothing where no curves were computed.

    Args:
        looks: of one map.
        others: of the other map, at the same words in the same order.

    Returns:
        Estimates by the names in `FAITHFULNESS`; a negative one of deletion is good.
    """
    if not looks or not looks[0].areas:
        return {}
    pairs = {}
    for measure in FAITHFULNESS:
        differences = [
            getattr(look.areas[MODEL], measure) - getattr(other.areas[MODEL], measure)
            for look, other in zip(looks, others, strict=True)
        ]
        pairs[measure] = by_image(looks, differences)
    return with_intervals(pairs)
