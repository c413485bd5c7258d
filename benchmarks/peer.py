"""Show, Attend and Tell the way that ImageCaptioning.pytorch computes it.

After the design of ruotianluo's repository: annotation vectors and the attention's keys are
projected once per image and repeated for each of its captions. All captions of the batch go through
an `LSTMCell` word by word until the last has ended. Searches extend the beams of all photos at
once. Computes the same function as `captioning.models.LSTMDecoder` with the paper's settings, and
finds the same captions as `captioning.search`.

Shapes: B images, N captions per image, C captions or beams of all images, K beams, L regions, D
annotation width, W width of the annotation vectors as projected, A width of the attention's space,
S tokens from BOS to EOS, T = S - 1 words, V vocabulary, n width of the LSTM.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from benchmarks.layers import DecoderLayers
from captioning.data.vocabulary import BOS, EOS, PAD, UNK


class Prepared(NamedTuple):
    """What is computed once, before the first word.

    Attributes:
        projected: the annotation vectors.
        keys: the annotation vectors as the attention compares them with its queries.
    """

    projected: Float[Tensor, "C L W"]
    keys: Float[Tensor, "C L A"]


class State(NamedTuple):
    """What the LSTM carries from word to word."""

    hidden: Float[Tensor, "C n"]
    cell: Float[Tensor, "C n"]


class Found(NamedTuple):
    """Captions, the best of each photo first.

    Attributes:
        tokens: words and EOS, PAD after it.
        scores: mean log probability of these tokens.
    """

    tokens: Int[Tensor, "B K T"]
    scores: Float[Tensor, "B K"]


class PeerDecoder(DecoderLayers):
    """Attention over prepared keys, LSTM cell and deep output, all captions at once."""

    def prepare(
        self, annotations: Float[Tensor, "B L D"], captions: int = 1
    ) -> tuple[Prepared, State]:
        """Annotation vectors, keys and first state, projected once and copied for each caption."""
        projected = self.project(annotations)
        prepared = (projected, self.key(projected))
        return (
            Prepared(*(part.repeat_interleave(captions, dim=0) for part in prepared)),
            State(*(part.repeat_interleave(captions, dim=0) for part in self.start(projected))),
        )

    def step(
        self, words: Int[Tensor, " C"], prepared: Prepared, state: State
    ) -> tuple[Float[Tensor, "C V"], Float[Tensor, "C L"], State]:
        """One word further: logits, weights and state."""
        embedding = self.dropout(self.embedding(words))
        queries = self.query(state.hidden)[:, None]
        energies = self.energy(torch.tanh(prepared.keys + queries)).squeeze(2)
        weights = F.softmax(energies, dim=1)
        context = torch.bmm(weights[:, None], prepared.projected).squeeze(1)
        context = torch.sigmoid(self.beta(state.hidden)) * context
        state = State(*self.cell(torch.cat([embedding, context], dim=1), state))
        deep = (
            embedding
            + self.output_hidden(self.dropout(state.hidden))
            + self.output_context(context)
        )
        return self.output(self.dropout(deep)), weights, state

    def forward(
        self, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "C T V"], Float[Tensor, "C T L"]]:
        """Log probabilities and weights of all words; those at PAD are to be ignored."""
        prepared, state = self.prepare(annotations, tokens.shape[1])
        log_probs, all_weights = [], []
        for words in tokens.flatten(0, 1).unbind(dim=1):
            if (words == PAD).all():  # all captions have ended
                break
            logits, weights, state = self.step(words, prepared, state)
            log_probs.append(F.log_softmax(logits, dim=1))
            all_weights.append(weights)
        return torch.stack(log_probs, dim=1), torch.stack(all_weights, dim=1)

    def loss(
        self, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N S"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the words and the doubly stochastic penalty, per word."""
        log_probs, weights = self(annotations, tokens[..., :-1])
        targets = tokens[..., 1 : log_probs.shape[1] + 1].flatten(0, 1)
        mask = (targets != PAD).to(log_probs.dtype)
        cross_entropy = -(log_probs.gather(2, targets[..., None]).squeeze(2) * mask).sum()
        seen = (weights * mask[..., None]).sum(dim=1)
        even_share = mask.sum(dim=1, keepdim=True) / weights.shape[2]
        return (cross_entropy + ((seen - even_share) ** 2).sum()) / mask.sum()

    def captions(self, annotations: Float[Tensor, "B L D"], width: int, max_length: int) -> Found:
        """The captions of all photos, by greedy search if the width is one."""
        search = self.greedy_search if width == 1 else self.beam_search
        return search(annotations, width, max_length)

    @torch.no_grad()
    def greedy_search(
        self, annotations: Float[Tensor, "B L D"], _width: int, max_length: int
    ) -> Found:
        """Always the most probable next word, until all captions have ended."""
        prepared, state = self.prepare(annotations)
        words = torch.full((len(annotations),), BOS, device=annotations.device)
        running = torch.ones_like(words, dtype=torch.bool)
        tokens, log_probs = [], []
        for length in range(max_length):
            logits, _, state = self.step(words, prepared, state)
            chances, words = _log_probs(logits, is_first=length == 0).max(dim=1)
            words = words.masked_fill(~running, PAD)
            tokens.append(words)
            log_probs.append(chances * running)
            running = running & (words != EOS)
            if not running.any():
                break
        found = torch.stack(tokens, dim=1)
        scores = torch.stack(log_probs, dim=1).sum(dim=1) / (found != PAD).sum(dim=1)
        return Found(found[:, None], scores[:, None])

    @torch.no_grad()
    def beam_search(
        self, annotations: Float[Tensor, "B L D"], width: int, max_length: int
    ) -> Found:
        """The best captions of every photo.

        Ended captions keep their place among the beams as long as no others have a better mean log
        probability. The best continuations are found by `topk`, where the repository sorts all.
        """
        photos = len(annotations)
        prepared, state = self.prepare(annotations)
        words = torch.full((photos,), BOS, device=annotations.device)
        logits, _, state = self.step(words, prepared, state)
        totals, words = _log_probs(logits, is_first=True).topk(width)
        tokens, scores, lengths = words[..., None], totals, torch.ones_like(words)
        prepared = Prepared(*(part.repeat_interleave(width, dim=0) for part in prepared))
        state = State(*(part.repeat_interleave(width, dim=0) for part in state))
        first = torch.arange(photos, device=words.device)[:, None] * width  # beam of each photo
        for _ in range(max_length - 1):
            running = (words != EOS) & (words != PAD)
            if not running.any():
                break
            logits, _, state = self.step(words.flatten(), prepared, state)
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
            state = State(*(part[(first + beams).flatten()] for part in state))
        return Found(tokens, scores)


def _log_probs(logits: Float[Tensor, "C V"], is_first: bool = False) -> Float[Tensor, "C V"]:
    """Of every word to come next; special words have none, and no caption is empty."""
    logits[:, [PAD, BOS, UNK]] = float("-inf")
    log_probs = F.log_softmax(logits, dim=1)
    if is_first:
        log_probs[:, EOS] = float("-inf")
    return log_probs
