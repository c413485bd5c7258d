"""Annotation vectors of words, so that decoders translate.

Shapes: B sentences, L source words, D annotation width, V source vocabulary.
"""

from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from captioning.configurable import Configurable
from captioning.data.vocabulary import PAD


class TextEncoder(Configurable, nn.Module):
    """A bi-directional RNN over source words (Bahdanau et al. 2015, section 3.2).

    The annotation vector of a word is the concatenation of the forward state, after the words up to
    it, and the backward state, after the words from it on. A decoder reads sentences by
    ``decoder.remember(*encoder(tokens))``.

    Args:
        vocab_size: V, special tokens included.
        embedding_dim: width of a word embedding.
        hidden_dim: width of each direction, half of D.
        dropout: of word embeddings and annotation vectors.

    Attributes:
        annotation_dim: D.
    """

    removed: ClassVar = {"cell": "gru"}

    def __init__(
        self, vocab_size: int, embedding_dim: int = 256, hidden_dim: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.annotation_dim = 2 * hidden_dim
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)
        self.rnn = nn.GRU(embedding_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, tokens: Int[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B L D"], Bool[Tensor, "B L"]]:
        """Compute annotation vectors, zero at PAD, and the mask of words, at least one each."""
        mask = tokens != PAD
        embedded = self.dropout(self.embedding(tokens))
        packed = pack_padded_sequence(
            embedded, mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        annotations, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1]
        )
        return self.dropout(annotations), mask
