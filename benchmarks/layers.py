"""The layers of the paper's decoder, built around an `LSTMCell`, with our decoder's parameters.

The textbook and the peer share these, so that both have the very parameters that ours has; how they
compute with them is their own.

Shapes: C captions, L regions, D annotation width, W width of the annotation vectors as projected (D
where nothing projects them), V vocabulary, m width of a word embedding, n width of the LSTM, A
width of the attention's space.
"""

from collections.abc import Mapping
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from captioning.models import LSTMDecoder

SAME_NAMES = (
    "project",
    "embedding",
    "initial_hidden",
    "initial_cell",
    "beta",
    "output_hidden",
    "output_context",
    "output",
)
"""Layers that both decoders call alike."""

AnyLayers = TypeVar("AnyLayers", bound="DecoderLayers")


class DecoderLayers(nn.Module):
    """Layers of attention, LSTM cell and deep output.

    Args:
        annotation_dim: D.
        vocab_size: V.
        embedding_dim: m.
        hidden_dim: n.
        attention_dim: A.
        projection_dim: W; none where annotation vectors are taken as they are.
        dropout: of word embeddings and of the deep output.
        annotation_dropout: of the projected annotation vectors.
    """

    def __init__(
        self,
        annotation_dim: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_dim: int,
        attention_dim: int,
        projection_dim: int | None,
        dropout: float,
        annotation_dropout: float,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        width = projection_dim or annotation_dim
        self.project = nn.Sequential()
        if projection_dim:
            self.project.append(nn.Linear(annotation_dim, width))
            self.project.append(nn.ReLU())
        self.project.append(nn.Dropout(annotation_dropout))
        self.key = nn.Linear(width, attention_dim)
        self.query = nn.Linear(hidden_dim, attention_dim, bias=False)
        self.energy = nn.Linear(attention_dim, 1, bias=False)
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.initial_hidden = nn.Linear(width, hidden_dim)
        self.initial_cell = nn.Linear(width, hidden_dim)
        self.beta = nn.Linear(hidden_dim, 1)
        self.cell = nn.LSTMCell(embedding_dim + width, hidden_dim)
        self.output_hidden = nn.Linear(hidden_dim, embedding_dim, bias=False)
        self.output_context = nn.Linear(width, embedding_dim, bias=False)
        self.output = nn.Linear(embedding_dim, vocab_size)
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def of(cls: type[AnyLayers], decoder: LSTMDecoder) -> AnyLayers:
        """Layers with our decoder's parameters, in the same mode, place and precision."""
        config = decoder.config
        layers = cls(
            config["annotation_dim"],
            config["vocab_size"],
            config["embedding_dim"],
            config["hidden_dim"],
            config["attention_dim"],
            config["projection_dim"],
            config["dropout"],
            config["annotation_dropout"],
        )
        values = by_layer_names(decoder.state_dict())
        # An LSTMCell adds two biases where one is enough.
        values["cell.bias_hh"] = torch.zeros_like(values["cell.bias_ih"])
        layers.load_state_dict(values)
        parameter = next(decoder.parameters())
        return layers.to(parameter.device, parameter.dtype).train(decoder.training)

    def start(
        self, projected: Float[Tensor, "C L W"]
    ) -> tuple[Float[Tensor, "C n"], Float[Tensor, "C n"]]:
        """Hidden and cell state from the mean annotation vector."""
        mean = projected.mean(dim=1)
        return torch.tanh(self.initial_hidden(mean)), torch.tanh(self.initial_cell(mean))


def by_layer_names(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of our decoder, or their gradients, by the names that these layers have."""
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
