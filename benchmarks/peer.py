"""Show, Attend and Tell the way that the best research repositories write it, for comparison.

After the design of ruotianluo's ImageCaptioning.pytorch: annotation vectors and the attention's
keys are projected once per image and repeated for each of its captions; then all captions of the
batch go through an `LSTMCell` word by word, those that have ended too, until the last has. It
computes the same function as `captioning.models.LSTMDecoder` with the paper's settings.

Shapes: B images, N captions per image, C = B N captions, L regions, D annotation width, W width of
the annotation vectors as projected (D where nothing projects them), A width of the attention's
space, S tokens from BOS to EOS, T = S - 1 words, V vocabulary, n width of the LSTM.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from benchmarks.layers import DecoderLayers
from captioning.data.vocabulary import PAD


class Prepared(NamedTuple):
    """What is computed once, before the first word.

    Attributes:
        projected: the annotation vectors.
        keys: as the attention compares them with its queries.
    """

    projected: Float[Tensor, "C L W"]
    keys: Float[Tensor, "C L A"]

    def repeated(self, times: int) -> "Prepared":
        """A copy for each of the captions of an image."""
        return Prepared(*(part.repeat_interleave(times, dim=0) for part in self))


class State(NamedTuple):
    """What the LSTM carries from word to word."""

    hidden: Float[Tensor, "C n"]
    cell: Float[Tensor, "C n"]

    def of(self, captions: Int[Tensor, "c"]) -> "State":
        """The state of these captions."""
        return State(*(part.index_select(0, captions) for part in self))


class PeerDecoder(DecoderLayers):
    """Attention over prepared keys, LSTM cell and deep output, all captions at once."""

    def prepare(self, annotations: Float[Tensor, "B L D"]) -> Prepared:
        """Annotation vectors and keys, once per image."""
        projected = self.project(annotations)
        return Prepared(projected, self.key(projected))

    def begin(self, prepared: Prepared) -> State:
        """The state before the first word."""
        return State(*self.start(prepared.projected))

    def attend(
        self, prepared: Prepared, hidden: Float[Tensor, "C n"]
    ) -> tuple[Float[Tensor, "C W"], Float[Tensor, "C L"]]:
        """The expected annotation vector and the weights of the regions."""
        energies = self.energy(torch.tanh(prepared.keys + self.query(hidden)[:, None])).squeeze(2)
        weights = F.softmax(energies, dim=1)
        return torch.bmm(weights[:, None], prepared.projected).squeeze(1), weights

    def step(
        self, words: Int[Tensor, "C"], prepared: Prepared, state: State
    ) -> tuple[Float[Tensor, "C V"], Float[Tensor, "C L"], State]:
        """One word further: logits, weights and state."""
        embedding = self.dropout(self.embedding(words))
        context, weights = self.attend(prepared, state.hidden)
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
        """Log probabilities and weights of all words; what stands at PAD means nothing."""
        prepared = self.prepare(annotations)
        state = self.begin(prepared)
        captions = tokens.shape[1]
        prepared = prepared.repeated(captions)
        state = State(*(part.repeat_interleave(captions, dim=0) for part in state))
        log_probs, all_weights = [], []
        for words in tokens.flatten(0, 1).unbind(dim=1):
            if (words == PAD).all():  # all captions have ended
                break
            logits, weights, state = self.step(words, prepared, state)
            log_probs.append(F.log_softmax(logits, dim=1))
            all_weights.append(weights)
        return torch.stack(log_probs, dim=1), torch.stack(all_weights, dim=1)


def loss(
    decoder: PeerDecoder, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N S"]
) -> Float[Tensor, ""]:
    """Cross-entropy of the words that are there and the doubly stochastic penalty, per word.

    The penalty compares what a region gets with its fair share, T / L, where the paper has one;
    the difference is a constant.
    """
    log_probs, weights = decoder(annotations, tokens[..., :-1])
    targets = tokens[..., 1 : log_probs.shape[1] + 1].flatten(0, 1)
    mask = (targets != PAD).to(log_probs.dtype)
    cross_entropy = -(log_probs.gather(2, targets[..., None]).squeeze(2) * mask).sum()
    seen = (weights * mask[..., None]).sum(dim=1)
    fair_share = mask.sum(dim=1, keepdim=True) / weights.shape[2]
    return (cross_entropy + ((seen - fair_share) ** 2).sum()) / mask.sum()


def training_step(
    decoder: PeerDecoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    optimizer: torch.optim.Optimizer,
    autocast: torch.autocast,
) -> None:
    """Forward, backward, optimizer."""
    optimizer.zero_grad()
    with autocast:
        value = loss(decoder, annotations, tokens)
    value.backward()
    optimizer.step()
