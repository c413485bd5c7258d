"""Search the way that the best research repositories write it: the beams of all photos at once.

Annotation vectors and keys are projected once per photo and repeated for each of its beams. The
best continuations are found by `topk`, where some sort them all, and the search stops when all
beams have ended, so that what is compared is no slower than it needs to be. Finds the same captions
as `captioning.search.BeamSearch` and `captioning.search.Greedy` with their default settings.

Shapes: B photos, K beams, L regions, D annotation width, V vocabulary, T words of the longest
caption.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from benchmarks.peer import PeerDecoder, State
from captioning.data.vocabulary import BOS, EOS, PAD, UNK

MAX_LENGTH = 20
"""The most words of a caption, EOS included, as in the package's searches."""


class Found(NamedTuple):
    """The captions, the best of each photo first.

    Attributes:
        tokens: words and EOS, PAD after it.
        scores: the mean log probability of these tokens.
    """

    tokens: Int[Tensor, "B K T"]
    scores: Float[Tensor, "B K"]


def searched(decoder: PeerDecoder, annotations: Float[Tensor, "B L D"], width: int) -> Found:
    """The captions of all photos, greedily where the width is one."""
    if width == 1:
        return greedy_search(decoder, annotations)
    return beam_search(decoder, annotations, width)


@torch.no_grad()
def greedy_search(decoder: PeerDecoder, annotations: Float[Tensor, "B L D"]) -> Found:
    """Always the most probable next word, until all captions have ended.

    Args:
        decoder: in evaluation mode.
        annotations: of the photos.
    """
    prepared = decoder.prepare(annotations)
    state = decoder.begin(prepared)
    words = torch.full((len(annotations),), BOS, device=annotations.device)
    running = torch.ones_like(words, dtype=torch.bool)
    tokens, log_probs = [], []
    for length in range(MAX_LENGTH):
        logits, _, state = decoder.step(words, prepared, state)
        chances, words = _log_probs(logits, is_first=length == 0).max(dim=1)
        words = words.masked_fill(~running, PAD)
        tokens.append(words)
        log_probs.append(chances * running)
        running = running & (words != EOS)
        if not running.any():
            break
    found = torch.stack(tokens, dim=1)
    lengths = (found != PAD).sum(dim=1)
    return Found(found[:, None], (torch.stack(log_probs, dim=1).sum(dim=1) / lengths)[:, None])


@torch.no_grad()
def beam_search(decoder: PeerDecoder, annotations: Float[Tensor, "B L D"], width: int) -> Found:
    """The best captions of every photo.

    Ended captions keep their place among the beams as long as no others have a better mean log
    probability.

    Args:
        decoder: in evaluation mode.
        annotations: of the photos.
        width: K.
    """
    photos = len(annotations)
    prepared = decoder.prepare(annotations)
    words = torch.full((photos,), BOS, device=annotations.device)
    logits, _, state = decoder.step(words, prepared, decoder.begin(prepared))
    totals, words = _log_probs(logits, is_first=True).topk(width)
    tokens = words[..., None]
    prepared = prepared.repeated(width)
    state = State(*(part.repeat_interleave(width, dim=0) for part in state))
    first = torch.arange(photos, device=words.device)[:, None] * width  # beam of each photo
    lengths = torch.ones_like(words)
    scores = totals
    for _ in range(MAX_LENGTH - 1):
        running = (words != EOS) & (words != PAD)
        if not running.any():
            break
        logits, _, state = decoder.step(words.flatten(), prepared, state)
        log_probs = _log_probs(logits).unflatten(0, (photos, width))
        log_probs[~running] = float("-inf")
        log_probs[..., PAD].masked_fill_(~running, 0.0)  # an ended caption stays as it is
        lengths = lengths + running
        candidates = totals[..., None] + log_probs
        scores, best = (candidates / lengths[..., None]).flatten(1).topk(width)
        totals = candidates.flatten(1).gather(1, best)
        beams, words = best // logits.shape[1], best % logits.shape[1]
        lengths = lengths.gather(1, beams)
        tokens = tokens.gather(1, beams[..., None].expand_as(tokens))
        tokens = torch.cat([tokens, words[..., None]], dim=2)
        state = state.of((first + beams).flatten())
    return Found(tokens, scores)


def _log_probs(logits: Float[Tensor, "C V"], is_first: bool = False) -> Float[Tensor, "C V"]:
    """Of every word to come next; special words have none, and no caption is empty."""
    logits[:, [PAD, BOS, UNK]] = float("-inf")
    log_probs = F.log_softmax(logits, dim=1)
    if is_first:
        log_probs[:, EOS] = float("-inf")
    return log_probs
