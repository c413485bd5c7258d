"""Beam search the way that the well-known tutorials write it: one photo at a time.

The beams of the photo are the batch, each with its view of the photo's annotation vectors. Finds
the same captions as `captioning.search.BeamSearch` with its default settings, and with a width of
one the same as `captioning.search.Greedy`.

Shapes: B photos, K beams, L regions, D annotation width, V vocabulary.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from benchmarks.textbook import TextbookDecoder
from captioning.data.vocabulary import BOS, EOS, PAD, UNK


class Found(NamedTuple):
    """One caption.

    Attributes:
        tokens: words and EOS.
        score: the mean log probability of these tokens.
    """

    tokens: list[int]
    score: float


@torch.no_grad()
def beam_search(
    decoder: TextbookDecoder,
    annotations: Float[Tensor, "L D"],
    width: int,
    max_length: int = 20,
) -> list[Found]:
    """The captions of one photo, the best first.

    Ended captions keep their place among the beams as long as no others have a better mean log
    probability.

    Args:
        decoder: in evaluation mode.
        annotations: of the photo.
        width: K.
        max_length: the most words of a caption, EOS included.
    """
    projected = decoder.project(annotations).expand(width, -1, -1)
    hidden, cell = decoder.start(projected)
    words = torch.full((width,), BOS, device=annotations.device)
    captions: list[list[int]] = [[] for _ in range(width)]
    totals = annotations.new_full((width,), float("-inf"))
    totals[0] = 0.0  # all beams are the same at first, so only one may branch
    scores = totals
    for length in range(max_length):
        logits, _, hidden, cell = decoder.step(decoder.embedding(words), projected, hidden, cell)
        logits[:, [PAD, BOS, UNK]] = float("-inf")
        log_probs = F.log_softmax(logits, dim=1)
        if length == 0:
            log_probs[:, EOS] = float("-inf")  # no caption is empty
        ended = torch.tensor([EOS in caption for caption in captions], device=words.device)
        log_probs[ended] = float("-inf")
        log_probs[ended, PAD] = 0.0  # an ended caption stays as it is
        lengths = torch.tensor(
            [len(caption) + (EOS not in caption) for caption in captions], device=words.device
        )
        totals = totals[:, None] + log_probs
        scores, best = (totals / lengths[:, None]).flatten().topk(width)
        totals = totals.flatten()[best]
        parents, words = best // log_probs.shape[1], best % log_probs.shape[1]
        hidden, cell = hidden[parents], cell[parents]
        captions = [
            captions[parent] + ([word] if word != PAD else [])
            for parent, word in zip(parents.tolist(), words.tolist(), strict=True)
        ]
        if all(EOS in caption for caption in captions):
            break
    found = [Found(*one) for one in zip(captions, scores.tolist(), strict=True)]
    return sorted(found, key=lambda one: one.score, reverse=True)


def photo_by_photo(
    decoder: TextbookDecoder, annotations: Float[Tensor, "B L D"], width: int
) -> list[list[Found]]:
    """The captions of B photos, one photo after the other."""
    return [beam_search(decoder, photo, width) for photo in annotations]
