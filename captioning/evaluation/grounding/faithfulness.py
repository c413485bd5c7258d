"""Faithfulness of attention by occlusion: how much a word's probability drops without regions.

Shapes: C captions, each with its image, L regions, S words with BOS, P phrases, V vocabulary.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.evaluation.grounding.looks import OcclusionDrops, gaussian
from captioning.models.decoder import Decoder
from captioning.search.search import NEVER

HIDDEN = 0.5
"""The share of attention that the hidden regions hold, at least."""

DRAWS = 3
"""The number of random sets of regions that are hidden for each phrase."""

Phrase: TypeAlias = tuple[int, int, int]
"""The caption, and start and stop in its words."""

ROWS = 128
"""Phrases with hidden regions that the decoder computes at a time; they take about 100 MB."""


def occlusion_drops(
    decoder: Decoder,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    phrases: Sequence[Phrase],
    weights: Float[Tensor, "P L"],
    grid: tuple[int, int],
    generator: torch.Generator,
) -> list[OcclusionDrops]:
    """Each phrase's probability, and its drop when regions are hidden.

    The words before the phrase are given. Regions are hidden from the caption's first word on, so
    that the decoder's state holds nothing of them. Hidden are the fewest most attended regions that
    hold `HIDDEN` of the attention and, as baselines, as many random ones, and those that hold as
    much of the Gaussian in the middle.

    Args:
        decoder: the model's.
        annotations: of each caption's image.
        tokens: the captions from BOS on, PAD after their end.
        phrases: caption, start and stop of each.
        weights: each phrase's attention, or another map of it.
        grid: rows and columns of the regions.
        generator: draws the random regions, on the CPU.
    """
    if not phrases:
        return []
    attended = _most_attended(weights)
    count = attended.sum(dim=1).cpu()
    noise = torch.rand(len(phrases), DRAWS, attended.shape[1], generator=generator)
    random = noise.argsort(dim=2).argsort(dim=2) < count[:, None, None]
    nothing = torch.zeros_like(attended)
    middle = torch.from_numpy(gaussian(grid)).flatten().to(weights).expand_as(weights)
    hidden = torch.cat(
        [
            nothing[:, None],
            attended[:, None],
            _most_attended(middle)[:, None],
            random.to(attended.device),
        ],
        dim=1,
    )  # (P, 3 + DRAWS, L)
    each = [phrase for phrase in phrases for _ in range(hidden.shape[1])]
    found = probabilities(decoder, annotations, tokens, each, (~hidden).flatten(0, 1))
    whole, without, centred, *at_random = found.view(len(phrases), -1).unbind(dim=1)
    columns = (whole, whole - without, whole - torch.stack(at_random).mean(dim=0), whole - centred)
    return [OcclusionDrops(*row) for row in torch.stack(columns, dim=1).tolist()]


def _most_attended(weights: Float[Tensor, "P L"]) -> Bool[Tensor, "P L"]:
    """The fewest regions that hold `HIDDEN` of the attention in total, but never all regions."""
    largest, order = weights.sort(dim=1, descending=True, stable=True)
    chosen = largest.cumsum(dim=1) - largest < HIDDEN
    chosen[:, -1] = False
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def probabilities(
    decoder: Decoder,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    phrases: Sequence[Phrase],
    mask: Bool[Tensor, "P L"],
) -> Float[Tensor, "P"]:
    """The joint probability of each phrase's words, given the words before it.

    Args:
        decoder: the model's.
        annotations: of each caption's image.
        tokens: from BOS on.
        phrases: caption, start and stop.
        mask: True where the phrase's region may be attended.
    """
    parts = [phrases[start : start + ROWS] for start in range(0, len(phrases), ROWS)]
    return torch.cat(
        [
            _probabilities(decoder, annotations, tokens, part, its_mask)
            for part, its_mask in zip(parts, mask.split(ROWS), strict=True)
        ]
    )


def _probabilities(
    decoder: Decoder,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    phrases: Sequence[Phrase],
    mask: Bool[Tensor, "P L"],
) -> Float[Tensor, "P"]:
    """The same for phrases that are computed at a time."""
    captions, starts, stops = torch.tensor(phrases, device=tokens.device).T
    places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    read = tokens[captions, :-1].masked_fill(places >= stops[:, None], PAD)
    logits, _ = decoder(annotations[captions], read[:, None], mask)
    rows, columns = ((places >= starts[:, None]) & (places < stops[:, None])).nonzero().T
    scores = logits[rows, 0, columns].double()
    scores[:, list(NEVER)] = float("-inf")
    wanted = tokens[captions[rows], columns + 1]
    log_probs = scores.log_softmax(dim=-1).gather(1, wanted[:, None])[:, 0]
    return log_probs.new_zeros(len(phrases)).index_add(0, rows, log_probs).exp()
