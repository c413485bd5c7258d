"""Deletion and insertion curves: how fast a map's regions take a word away, or bring it back.

Petsiuk et al. 2018 ("RISE: Randomized Input Sampling for Explanation of Black-box Models"), with
regions in place of pixels.

Shapes: C captions, each with its image, L regions, S tokens with BOS, P phrases, M maps.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.evaluation.grounding.faithfulness import Phrase, probabilities
from captioning.evaluation.grounding.looks import Areas
from captioning.models.decoder import Decoder

LEVELS = 6
"""A curve has the shares 0, 1/6, ..., 5/6 of regions hidden, or 1/6, ..., 1 shown."""


def areas(
    decoder: Decoder,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    phrases: Sequence[Phrase],
    maps: Float[Tensor, "P M L"],
) -> list[list[Areas]]:
    """The areas of each phrase under the curves of each of its maps.

    Args:
        decoder: the model's.
        annotations: of each caption's image.
        tokens: from BOS on, PAD after the end.
        phrases: caption, and start and stop in its words.
        maps: what orders the regions; of equal ones the first in reading order come first.
    """
    regions = maps.shape[2]
    shown = [max(1, min(round(regions * i / LEVELS), regions)) for i in range(1, LEVELS + 1)]
    rank = maps.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
    top = torch.stack([rank < count for count in shown], dim=2)  # (P, M, levels, L)
    # All shown, then what deletion leaves: at least one region, which attention needs.
    left = torch.stack([rank >= min(count, regions - 1) for count in shown[:-1]], dim=2)
    seen = torch.cat([top[:, :, -1:], left, top[:, :, :-1]], dim=2)
    each = [phrase for phrase in phrases for _ in range(seen.shape[1] * seen.shape[2])]
    found = probabilities(decoder, annotations, tokens, each, seen.flatten(0, 2))
    found = found.view(seen.shape[:3])
    deletion = found[..., :LEVELS]
    insertion = torch.cat([found[..., LEVELS:], found[..., :1]], dim=2)
    return [
        [Areas(*area) for area in of_phrase]
        for of_phrase in torch.stack([_area(deletion), _area(insertion)], dim=-1).tolist()
    ]


def _area(curve: Float[Tensor, "P M levels"]) -> Float[Tensor, "P M"]:
    """By the trapezoidal rule, over a width of one."""
    return torch.trapezoid(curve, dim=2) / (curve.shape[2] - 1)
