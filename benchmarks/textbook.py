"""Show, Attend and Tell the way that the well-known tutorials write it, for comparison.

Every caption has its own copy of its image's annotation vectors. At every word the batch narrows
to the captions that are still running, the attention's keys are projected anew, an `LSTMCell` moves
one step and the vocabulary's layer scores the next word. It computes the same function as
`captioning.models.LSTMDecoder` with the paper's settings.

Shapes: C captions, R of them still running, L regions, D annotation width, S tokens from BOS to
EOS, T = S - 1 words, V vocabulary, m width of a word embedding, n width of the LSTM.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from captioning.data.vocabulary import PAD
from captioning.models import LSTMDecoder

SAME_NAMES = (
    "embedding",
    "initial_hidden",
    "initial_cell",
    "beta",
    "output_hidden",
    "output_context",
    "output",
)
"""Layers that both decoders call alike."""


class TextbookDecoder(nn.Module):
    """Attention, LSTM cell and deep output, one word at a time.

    Args:
        annotation_dim: D.
        vocab_size: V.
        embedding_dim: m.
        hidden_dim: n.
        attention_dim: width of the attention's space.
        dropout: of word embeddings and of the deep output.
    """

    def __init__(
        self,
        annotation_dim: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_dim: int,
        attention_dim: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.query = nn.Linear(hidden_dim, attention_dim, bias=False)
        self.energy = nn.Linear(attention_dim, 1, bias=False)
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.initial_hidden = nn.Linear(annotation_dim, hidden_dim)
        self.initial_cell = nn.Linear(annotation_dim, hidden_dim)
        self.beta = nn.Linear(hidden_dim, 1)
        self.cell = nn.LSTMCell(embedding_dim + annotation_dim, hidden_dim)
        self.output_hidden = nn.Linear(hidden_dim, embedding_dim, bias=False)
        self.output_context = nn.Linear(annotation_dim, embedding_dim, bias=False)
        self.output = nn.Linear(embedding_dim, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def start(
        self, annotations: Float[Tensor, "C L D"]
    ) -> tuple[Float[Tensor, "C n"], Float[Tensor, "C n"]]:
        """Hidden and cell state from the mean annotation vector."""
        mean = annotations.mean(dim=1)
        return torch.tanh(self.initial_hidden(mean)), torch.tanh(self.initial_cell(mean))

    def attend(
        self, annotations: Float[Tensor, "R L D"], hidden: Float[Tensor, "R n"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R L"]]:
        """The expected annotation vector and the weights of the regions."""
        keys = self.key(annotations)
        queries = self.query(hidden)
        energies = self.energy(torch.tanh(keys + queries[:, None])).squeeze(2)
        weights = F.softmax(energies, dim=1)
        return (annotations * weights[..., None]).sum(dim=1), weights

    def step(
        self,
        embedding: Float[Tensor, "R m"],
        annotations: Float[Tensor, "R L D"],
        hidden: Float[Tensor, "R n"],
        cell: Float[Tensor, "R n"],
    ) -> tuple[
        Float[Tensor, "R V"], Float[Tensor, "R L"], Float[Tensor, "R n"], Float[Tensor, "R n"]
    ]:
        """One word further: logits, weights, hidden and cell state."""
        context, weights = self.attend(annotations, hidden)
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
        embeddings = self.dropout(self.embedding(tokens))
        hidden, cell = self.start(annotations)
        logits = annotations.new_zeros(*tokens.shape, self.vocab_size)
        weights = annotations.new_zeros(*tokens.shape, annotations.shape[1])
        for t in range(int(lengths.max())):
            running = int((lengths > t).sum())
            logits[:running, t], weights[:running, t], hidden, cell = self.step(
                embeddings[:running, t], annotations[:running], hidden[:running], cell[:running]
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


def textbook_of(decoder: LSTMDecoder) -> TextbookDecoder:
    """The textbook's decoder with our decoder's parameters, in the same mode and place."""
    config = decoder.config
    textbook = TextbookDecoder(
        config["annotation_dim"],
        config["vocab_size"],
        config["embedding_dim"],
        config["hidden_dim"],
        config["attention_dim"],
        config["dropout"],
    )
    values = by_textbook_names(decoder.state_dict())
    # An LSTMCell adds two biases where one is enough.
    values["cell.bias_hh"] = torch.zeros_like(values["cell.bias_ih"])
    textbook.load_state_dict(values)
    parameter = next(decoder.parameters())
    return textbook.to(parameter.device, parameter.dtype).train(decoder.training)


def by_textbook_names(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of our decoder, or their gradients, as the textbook's decoder calls them."""
    values = {name: value for name, value in ours.items() if name.split(".")[0] in SAME_NAMES}
    values |= {
        name.removeprefix("attention."): value
        for name, value in ours.items()
        if name.startswith("attention.")
    }
    # Both order the gates i, f, g, o.
    values["cell.weight_ih"] = torch.cat(
        [ours["word_gates.weight"], ours["context_gates.weight"]], dim=1
    )
    values["cell.weight_hh"] = ours["hidden_gates.weight"]
    values["cell.bias_ih"] = ours["word_gates.bias"]
    return values
