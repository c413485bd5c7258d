"""Show, Attend and Tell the way that the well-known tutorials write it, for comparison.

Every caption has its own copy of its image's annotation vectors. At every word the batch narrows
to the captions that are still running, the attention's keys are projected anew, an `LSTMCell` moves
one step and the vocabulary's layer scores the next word. It computes the same function as
`captioning.models.LSTMDecoder` with the paper's settings.

Shapes: C captions, R of them still running, L regions, D annotation width, W width of the
annotation vectors as projected (D where nothing projects them), S tokens from BOS to EOS, T = S - 1
words, V vocabulary, m width of a word embedding, n width of the LSTM.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.layers import DecoderLayers
from captioning.data.vocabulary import PAD


class TextbookDecoder(DecoderLayers):
    """Attention, LSTM cell and deep output, one word at a time."""

    def attend(
        self, projected: Float[Tensor, "R L W"], hidden: Float[Tensor, "R n"]
    ) -> tuple[Float[Tensor, "R W"], Float[Tensor, "R L"]]:
        """The expected annotation vector and the weights of the regions."""
        keys = self.key(projected)
        queries = self.query(hidden)
        energies = self.energy(torch.tanh(keys + queries[:, None])).squeeze(2)
        weights = F.softmax(energies, dim=1)
        return (projected * weights[..., None]).sum(dim=1), weights

    def step(
        self,
        embedding: Float[Tensor, "R m"],
        projected: Float[Tensor, "R L W"],
        hidden: Float[Tensor, "R n"],
        cell: Float[Tensor, "R n"],
    ) -> tuple[
        Float[Tensor, "R V"], Float[Tensor, "R L"], Float[Tensor, "R n"], Float[Tensor, "R n"]
    ]:
        """One word further: logits, weights, hidden and cell state."""
        context, weights = self.attend(projected, hidden)
        context = torch.sigmoid(self.beta(hidden)) * context
        hidden, cell = self.cell(torch.cat([embedding, context], dim=1), (hidden, cell))
        deep = embedding + self.output_hidden(self.dropout(hidden)) + self.output_context(context)
        return self.output(self.dropout(deep)), weights, hidden, cell

    def forward(
        self,
        annotations: Float[Tensor, "C L D"],
        tokens: Int[Tensor, "C T"],
        lengths: Int[Tensor, "C"],
    ) -> tuple[Float[Tensor, "C T V"], Float[Tensor, "C T L"]]:
        """Logits and weights of all words; zero where a caption has ended.

        Args:
            annotations: of each caption's image.
            tokens: the words that are read.
            lengths: how many of them each caption has, the longest caption first.
        """
        projected = self.project(annotations)
        embeddings = self.dropout(self.embedding(tokens))
        hidden, cell = self.start(projected)
        logits = annotations.new_zeros(*tokens.shape, self.vocab_size)
        weights = annotations.new_zeros(*tokens.shape, annotations.shape[1])
        for t in range(int(lengths.max())):
            running = int((lengths > t).sum())
            logits[:running, t], weights[:running, t], hidden, cell = self.step(
                embeddings[:running, t], projected[:running], hidden[:running], cell[:running]
            )
        return logits, weights


def copies(annotations: Float[Tensor, "B L D"], captions: int) -> Float[Tensor, "C L D"]:
    """Every image as often as it has captions."""
    return annotations.repeat_interleave(captions, dim=0)


def loss(
    decoder: TextbookDecoder, annotations: Float[Tensor, "C L D"], tokens: Int[Tensor, "C S"]
) -> Float[Tensor, ""]:
    """Cross-entropy of the packed words and the doubly stochastic penalty, per word.

    The penalty compares what a region gets with its fair share, T / L, where the paper has one;
    the difference is a constant.
    """
    lengths, order = (tokens[:, 1:] != PAD).sum(dim=1).sort(descending=True)
    annotations, tokens = annotations[order], tokens[order]
    logits, weights = decoder(annotations, tokens[:, :-1], lengths)
    scores = pack_padded_sequence(logits, lengths.cpu(), batch_first=True).data
    targets = pack_padded_sequence(tokens[:, 1:], lengths.cpu(), batch_first=True).data
    fair_share = lengths[:, None] / weights.shape[2]
    penalty = ((weights.sum(dim=1) - fair_share) ** 2).sum()
    return F.cross_entropy(scores, targets) + penalty / lengths.sum()


def training_step(
    decoder: TextbookDecoder,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Forward, backward, optimizer."""
    optimizer.zero_grad()
    loss(decoder, annotations, tokens).backward()
    optimizer.step()
