"""The layers of a transformer's encoder and decoder (Vaswani et al. 2017, section 3.1).

Shapes: B rows of a batch or images, N captions per image, T words, L regions, H heads, b words of
a block, d width of one head, W width of the model.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.models.multi_head import KeysValues, MultiHead
from captioning.models.past_words import with_words


class FeedForward(nn.Module):
    """The position-wise network: max(0, x W1 + b1) W2 + b2 (section 3.3, eq. 2).

    Args:
        width: W.
        inner_width: of the hidden layer.
        dropout: of the hidden layer.
    """

    def __init__(self, width: int, inner_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*B W"]) -> Float[Tensor, "*B W"]:
        """Each position on its own."""
        return self.outer(self.dropout(self.inner(x).relu()))


class Residual(nn.Module):
    """What surrounds each sub-layer: x + sub-layer, and layer norm after the sum or before it.

    Args:
        width: W.
        dropout: of what the sub-layer adds.
        norm_first: normalise what the sub-layer reads (Xiong et al. 2020) instead of the sum, as
            published. Then nothing but sums lies between the first layer and the last, and deep
            models train without a warm-up.
    """

    def __init__(self, width: int, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def read(self, x: Float[Tensor, "*B W"]) -> Float[Tensor, "*B W"]:
        """What the sub-layer reads."""
        return self.norm(x) if self.norm_first else x

    def add(self, x: Float[Tensor, "*B W"], change: Float[Tensor, "*B W"]) -> Float[Tensor, "*B W"]:
        """The sum with what the sub-layer gave."""
        x = x + self.dropout(change)
        return x if self.norm_first else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention and the position-wise network; equals `torch.nn.TransformerEncoderLayer`.

    Args:
        width: W.
        heads: H.
        inner_width: of the position-wise network.
        dropout: of weights, of hidden layers and of what each sub-layer adds.
        norm_first: layer norm before each sub-layer; after it, as published, if not.
    """

    def __init__(
        self, width: int, heads: int, inner_width: int, dropout: float, norm_first: bool
    ) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_attention = Residual(width, dropout, norm_first)
        self.around_network = Residual(width, dropout, norm_first)

    def forward(
        self, x: Float[Tensor, "B L W"], mask: Bool[Tensor, "#B #L L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Every position after one look at all that it may see."""
        read = self.around_attention.read(x)
        x = self.around_attention.add(x, self.self_attention(read, read, mask=mask).context)
        return self.around_network.add(x, self.feed_forward(self.around_network.read(x)))


class DecoderLayerResult(NamedTuple):
    """What a decoder's layer gives.

    Attributes:
        words: its output.
        past: blocks of keys and values of all words so far, to go on with.
        weights: of the attention over regions, by head; none where nobody asked.
    """

    words: Float[Tensor, "B N T W"]
    past: tuple[KeysValues, ...]
    weights: Float[Tensor, "B H N T L"] | None


class DecoderLayer(nn.Module):
    """Self-attention over words, attention over regions, and the position-wise network.

    Equals `torch.nn.TransformerDecoderLayer` where N is one. The N captions of an image share one
    copy of its keys and values.

    Args:
        width: W.
        heads: H.
        inner_width: of the position-wise network.
        dropout: of weights, of hidden layers and of what each sub-layer adds.
        norm_first: layer norm before each sub-layer; after it, as published, if not.
    """

    def __init__(
        self, width: int, heads: int, inner_width: int, dropout: float, norm_first: bool
    ) -> None:
        super().__init__()
        self.self_attention = MultiHead(width, heads, dropout=dropout)
        self.cross_attention = MultiHead(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner_width, dropout)
        self.around_self = Residual(width, dropout, norm_first)
        self.around_cross = Residual(width, dropout, norm_first)
        self.around_network = Residual(width, dropout, norm_first)

    def forward(
        self,
        words: Float[Tensor, "B N T W"],
        past: Sequence[KeysValues],
        regions: KeysValues,
        words_mask: Bool[Tensor, "#R #T T"] | None = None,
        regions_mask: Bool[Tensor, "#B #M L"] | None = None,
        with_weights: bool = False,
    ) -> DecoderLayerResult:
        """T more words of every caption: its first ones, or one after others.

        Args:
            words: the layer's input.
            past: blocks (B, N, H, b, d) of the words before; empty if there are none.
            regions: (B, L, W), what `cross_attention.project` gave for the image.
            words_mask: True where a word may see another one, of R = B N rows; none where each sees
                all, as a single word does in any case.
            regions_mask: True where a word may see a region; of M = N T words.
            with_weights: whether to give the weights over regions.
        """
        assert words.shape[2] == 1 or not past
        read = self.around_self.read(words)
        new = self.self_attention.project(read)
        past = with_words(past, self.self_attention.by_head(new))
        if words.shape[2] == 1:
            seen = self.self_attention.attend_blocks(read, past)
        else:
            rows = KeysValues(new.keys.flatten(0, 1), new.values.flatten(0, 1))
            seen = self.self_attention.attend(read.flatten(0, 1), rows, words_mask).context
            seen = seen.unflatten(0, words.shape[:2])
        words = self.around_self.add(words, seen)

        read = self.around_cross.read(words).flatten(1, 2)
        looked = self.cross_attention.attend(read, regions, regions_mask, with_weights)
        words = self.around_cross.add(words, looked.context.unflatten(1, words.shape[1:3]))
        weights = looked.weights
        if weights is not None:
            weights = weights.unflatten(2, words.shape[1:3])

        words = self.around_network.add(words, self.feed_forward(self.around_network.read(words)))
        return DecoderLayerResult(words, past, weights)
