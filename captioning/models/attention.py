"""Soft attention: which regions of the image matter for the next word.

Shapes: B images, N captions (queries) per image, L regions, D annotation width, Q query width,
A attention width.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.configurable import Configurable


class Attended(NamedTuple):
    """What a query gets from the annotations.

    Attributes:
        context: expected annotation vector under the weights (Xu et al. 2015, eq. 13).
        weights: attention weights over regions, each row summing to one.
    """

    context: Float[Tensor, "B N D"]
    weights: Float[Tensor, "B N L"]


def masked_softmax(
    scores: Float[Tensor, "B N L"],
    mask: Bool[Tensor, "B L"] | None = None,
    lengths: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N L"]:
    """Softmax over regions in which masked regions weigh exactly zero.

    Args:
        scores: one score per region.
        mask: True where a region may be attended.
        lengths: instead of a mask, how many regions of each image, from the first, may be attended.

    Raises:
        ValueError: both a mask and lengths are given, or an image has no region to attend to.
    """
    if lengths is not None:
        if mask is not None:
            raise ValueError("masked_softmax takes a mask or lengths, not both")
        mask = torch.arange(scores.shape[-1], device=scores.device) < lengths[:, None]
    if mask is not None:
        if not mask.any(dim=1).all():
            raise ValueError("every image needs at least one region that may be attended")
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    # At least in single precision, also under autocast: weights are looked at, and sum to one.
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


class Attention(Configurable, nn.Module):
    """What every attention promises: keys once per image, then any number of queries.

    Args:
        query_dim: Q, width of a query.
        annotation_dim: D, width of an annotation vector.
        attention_dim: A, width of the space in which queries meet keys.
    """

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.query = nn.Linear(query_dim, attention_dim, bias=False)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The keys, computed once per image and shared by all its captions and words."""
        return self.key(annotations)

    @abstractmethod
    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """How well each region fits each query, before the softmax."""

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts they give."""
        weights = masked_softmax(self.scores(query, keys), mask)
        return Attended(weights.to(annotations.dtype) @ annotations, weights)


class AdditiveAttention(Attention):
    """A perceptron scores each pair of query and key (Bahdanau et al. 2015; Xu et al. 2015, eq. 4).

    e = v . tanh(W_a a + W_h h)
    """

    def __init__(self, query_dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim)
        self.energy = nn.Linear(attention_dim, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """The energies e of the class's formula."""
        meeting = self.query(query)[:, :, None] + keys[:, None]  # (B, N, L, A)
        return self.energy(meeting.tanh()).squeeze(-1)


class DotProductAttention(Attention):
    """The scaled dot product of query and key (Luong et al. 2015; Vaswani et al. 2017, eq. 1)."""

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Dot products divided by the square root of A."""
        return self.query(query) @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5
