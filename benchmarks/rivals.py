"""The implementations that ours is compared with, each asked in the same way.

Shapes: B photos, N captions per photo, L regions, D annotation width, S tokens from BOS to EOS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from benchmarks import peer, textbook
from benchmarks.layers import DecoderLayers
from benchmarks.peer_search import searched
from benchmarks.textbook_search import photo_by_photo
from captioning.data.vocabulary import PAD


class Caption(NamedTuple):
    """One caption that was found.

    Attributes:
        tokens: words and EOS.
        score: the mean log probability of these tokens.
    """

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class Rival:
    """Another implementation of the same model.

    Attributes:
        name: of its contender.
        decoder: the class of its decoder.
        loss: of its decoder, annotation vectors (B, L, D) and captions (B, N, S).
        captions: of each photo, the best first: of its decoder, annotation vectors (B, L, D) and
            the width of the beam search.
    """

    name: str
    decoder: type[DecoderLayers]
    loss: Callable[[Any, Tensor, Tensor], Tensor]
    captions: Callable[[Any, Tensor, int], list[list[Caption]]]


def _textbook_loss(
    decoder: textbook.TextbookDecoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
) -> Float[Tensor, ""]:
    copies = textbook.copies(annotations, tokens.shape[1])
    return textbook.loss(decoder, copies, tokens.flatten(0, 1))


def _textbook_captions(
    decoder: textbook.TextbookDecoder, annotations: Float[Tensor, "B L D"], width: int
) -> list[list[Caption]]:
    found = photo_by_photo(decoder, annotations, width)
    return [[Caption(*one) for one in beams] for beams in found]


def _peer_captions(
    decoder: peer.PeerDecoder, annotations: Float[Tensor, "B L D"], width: int
) -> list[list[Caption]]:
    found = searched(decoder, annotations, width)
    return [
        [
            Caption([word for word in words if word != PAD], score)
            for words, score in zip(beams, scores, strict=True)
        ]
        for beams, scores in zip(found.tokens.tolist(), found.scores.tolist(), strict=True)
    ]


RIVALS = (
    Rival("textbook", textbook.TextbookDecoder, _textbook_loss, _textbook_captions),
    Rival("peer", peer.PeerDecoder, peer.loss, _peer_captions),
)
