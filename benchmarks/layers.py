"""The layers of the paper's decoder around an `LSTMCell`, which both rivals share.

Shapes: C captions, L regions, D annotation width, W width of the annotation vectors as projected,
n width of the LSTM.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from benchmarks.sizes import Size
from captioning.data.vocabulary import EOS


class DecoderLayers(nn.Module):
    """Layers of attention, LSTM cell and deep output.

    Args:
        size: of everything.
        dropout: of word embeddings, of the deep output, and of projected annotation vectors.
    """

    def __init__(self, size: Size, dropout: float = 0.5) -> None:
        super().__init__()
        width, hidden = size.width, size.hidden_dim
        self.project = (
            nn.Sequential(nn.Linear(size.annotation_dim, width), nn.ReLU(), nn.Dropout(dropout))
            if size.projection_dim
            else nn.Sequential()
        )
        self.key = nn.Linear(width, hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)
        self.embedding = nn.Embedding(size.vocab_size, hidden)
        self.initial_hidden = nn.Linear(width, hidden)
        self.initial_cell = nn.Linear(width, hidden)
        self.beta = nn.Linear(hidden, 1)
        self.cell = nn.LSTMCell(hidden + width, hidden)
        self.output_hidden = nn.Linear(hidden, hidden, bias=False)
        self.output_context = nn.Linear(width, hidden, bias=False)
        self.output = nn.Linear(hidden, size.vocab_size)
        self.dropout = nn.Dropout(dropout)

    def start(
        self, projected: Float[Tensor, "C L W"]
    ) -> tuple[Float[Tensor, "C n"], Float[Tensor, "C n"]]:
        """Hidden and cell state from the mean annotation vector."""
        mean = projected.mean(dim=1)
        return torch.tanh(self.initial_hidden(mean)), torch.tanh(self.initial_cell(mean))


def never_end(output: nn.Linear) -> None:
    """Make EOS impossible, so that all searches write captions of the same length."""
    with torch.no_grad():
        output.bias[EOS] = -1e4
