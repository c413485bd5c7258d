"""Whether a model needs the regions that it attends to: hide them, and see what a word loses.

Shapes: B images, L regions, S words with BOS, P phrases, V vocabulary.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.evaluation.grounding.looks import OcclusionDrops
from captioning.models.decoder import Decoder
from captioning.search.search import NEVER

HIDDEN = 0.5
"""The attention that the hidden regions hold together, or a little more."""

DRAWS = 3
"""Random sets of regions that are hidden for each phrase."""

ROWS = 128
"""Phrases with hidden regions that pass the decoder at a time; a memory of some 100 MB."""


def occlusion_drops(
    decoder: Decoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B S"],
    phrases: Sequence[tuple[int, int, int]],
    weights: Float[Tensor, "P L"],
    generator: torch.Generator,
) -> list[OcclusionDrops]:
    """What each phrase's probability is, and how it falls where regions are hidden.

    The words before the phrase are given, and the regions are hidden from the first of them on, so
    that what the state remembers of a hidden region does not stand in for it. Hidden are the fewest
    of the most attended regions that hold `HIDDEN` of the attention, and as many random ones.

    Args:
        decoder: the model's.
        annotations: of the images.
        tokens: the caption of each image from BOS on, PAD after its end.
        phrases: the image, and the start and stop of the phrase in the caption's words.
        weights: each phrase's attention.
        generator: of the random regions, on the CPU.
    """
    if not phrases:
        return []
    attended = _most_attended(weights)
    count = attended.sum(dim=1).cpu()
    noise = torch.rand(len(phrases), DRAWS, attended.shape[1], generator=generator)
    random = noise.argsort(dim=2).argsort(dim=2) < count[:, None, None]
    nothing = torch.zeros_like(attended)
    hidden = torch.cat(
        [nothing[:, None], attended[:, None], random.to(attended.device)], dim=1
    )  # (P, 2 + DRAWS, L)
    each = [phrase for phrase in phrases for _ in range(hidden.shape[1])]
    probabilities = torch.cat(
        [
            _probabilities(decoder, annotations, tokens, part, mask)
            for part, mask in zip(
                (each[start : start + ROWS] for start in range(0, len(each), ROWS)),
                (~hidden).flatten(0, 1).split(ROWS),
                strict=True,
            )
        ]
    ).view(len(phrases), -1)
    whole, without, at_random = probabilities[:, 0], probabilities[:, 1], probabilities[:, 2:]
    columns = (whole, whole - without, (whole[:, None] - at_random).mean(dim=1))
    return [OcclusionDrops(*row) for row in torch.stack(columns, dim=1).tolist()]


def _most_attended(weights: Float[Tensor, "P L"]) -> Bool[Tensor, "P L"]:
    """The fewest regions that hold `HIDDEN` of the attention together, but never all of them."""
    largest, order = weights.sort(dim=1, descending=True, stable=True)
    chosen = largest.cumsum(dim=1) - largest < HIDDEN
    chosen[:, -1] = False
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def _probabilities(
    decoder: Decoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B S"],
    phrases: Sequence[tuple[int, int, int]],
    mask: Bool[Tensor, "P L"],
) -> Float[Tensor, "P"]:
    """The probability of all words of each phrase together, given the words before it.

    Args:
        decoder: the model's.
        annotations: of the images.
        tokens: from BOS on.
        phrases: image, start and stop.
        mask: True where the phrase's region may be attended.
    """
    images, starts, stops = torch.tensor(phrases, device=tokens.device).T
    places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    read = tokens[images, :-1].masked_fill(places >= stops[:, None], PAD)
    logits, _ = decoder(annotations[images], read[:, None], mask)
    rows, columns = ((places >= starts[:, None]) & (places < stops[:, None])).nonzero().T
    scores = logits[rows, 0, columns].double()
    scores[:, list(NEVER)] = float("-inf")
    wanted = tokens[images[rows], columns + 1]
    log_probs = scores.log_softmax(dim=-1).gather(1, wanted[:, None])[:, 0]
    return log_probs.new_zeros(len(phrases)).index_add(0, rows, log_probs).exp()
