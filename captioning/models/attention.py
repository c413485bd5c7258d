"""Soft attention: which regions of the image matter for the next word (Xu et al. 2015).

Shapes: B images, N captions (queries) per image, L regions, D annotation width, Q query width,
A attention width.
"""

import inspect
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.attention_masks import padding_mask
from captioning.models.multi_head import KeysValues, MultiHead, head_names, map_of
from captioning.models.reporting import Reporting
from captioning.numbers import AnnotationWidth, Heads, ShareBelowOne, Width

Option = bool | int | float | str | None
"""What a configuration may give an attention beside its widths."""


class Attended(NamedTuple):
    """What a query gets from the annotation vectors.

    Attributes:
        context: the expected annotation vector under the weights (Xu et al. 2015, eq. 13).
        weights: attention weights over regions; each row sums to one.
    """

    context: Float[Tensor, "B N D"]
    weights: Float[Tensor, "B N L"]


def masked_softmax(
    scores: Float[Tensor, "B N L"], mask: Bool[Tensor, "B L"] | None = None
) -> Float[Tensor, "B N L"]:
    """Softmax over regions (Xu et al. 2015, eq. 5); masked regions weigh exactly zero.

    The result has at least single precision, also under autocast.

    Args:
        scores: one score per region.
        mask: True where a region may be attended; None where all may.

    Raises:
        ValueError: an image has no region to attend to.
    """
    check_every_image_has_a_region(mask)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


def check_every_image_has_a_region(mask: Bool[Tensor, "B L"] | None) -> None:
    """Nothing, where each image has a region that may be attended.

    Raises:
        ValueError: an image has none.
    """
    if mask is not None and not mask.any(dim=1).all():
        raise ValueError("every image needs at least one region that may be attended")


class Attention(Reporting, Configurable, nn.Module):
    """Keys once per image, then weights and contexts for any number of queries.

    A subclass gives `scores`, or overrides `attend` as a whole; training and search use nothing
    but `project` and `attend`.

    Args:
        query_dim: Q, width of a query.
        annotation_dim: D, width of an annotation vector.
        attention_dim: A, width of the space in which queries meet keys.
    """

    def __init__(
        self, query_dim: AnnotationWidth, annotation_dim: AnnotationWidth, attention_dim: Width
    ) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_dim, attention_dim)
        self.query = nn.Linear(query_dim, attention_dim, bias=False)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The keys, computed once per image and shared by all its captions and words."""
        return self.key(annotations)

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """How well each region fits each query, before the softmax (Xu et al. 2015, eq. 4)."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither `scores` nor `attend`")

    def attend(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts (Xu et al. 2015, eq. 4-6, 13)."""
        weights = masked_softmax(self.scores(query, keys), mask)
        return Attended(self.looks(weights).to(annotations.dtype) @ annotations, weights)

    def looks(self, weights: Float[Tensor, "B N L"]) -> Float[Tensor, "B N L"]:
        """How much of each region is in the context: as much as it weighs (eq. 13)."""
        return weights

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """The same as `attend`."""
        return self.attend(query, keys, annotations, mask)


class AdditiveAttention(Attention):
    """A perceptron scores each pair of query and key (Bahdanau et al. 2015; Xu et al., eq. 4)."""

    def __init__(
        self, query_dim: AnnotationWidth, annotation_dim: AnnotationWidth, attention_dim: Width
    ) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim)
        self.energy = nn.Linear(attention_dim, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """E = v . tanh(W_a a + W_h h)."""
        pairs = keys[:, None] + self.query(query)[:, :, None]  # (B, N, L, A)
        return self.energy(pairs.tanh()).squeeze(3)


class DotProductAttention(Attention):
    """The scaled dot product of query and key (Luong et al. 2015; Vaswani et al. 2017, eq. 1)."""

    def scores(
        self, query: Float[Tensor, "B N Q"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Dot products divided by the square root of A."""
        return self.query(query) @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5


class MultiHeadAttention(Attention):
    """Several scaled dot products at once, each in a space of its own (Vaswani et al. 2017).

    The context is no mean of annotation vectors but of their projections, one mean for each head,
    mixed by an output layer to the width of an annotation vector.

    Args:
        query_dim: Q, width of a query.
        annotation_dim: D, width of an annotation vector.
        attention_dim: A, width of the keys of all heads together.
        heads: how many; a divisor of A.
        dropout: of the weights.
        map_head: the head whose weights are reported, counted from 1; the mean of all if none.

    Raises:
        InputError: A cannot be divided among the heads, or there is no such head.
    """

    def __init__(
        self,
        query_dim: AnnotationWidth,
        annotation_dim: AnnotationWidth,
        attention_dim: Width,
        heads: Heads = 8,
        dropout: ShareBelowOne = 0.0,
        map_head: Heads | None = None,
    ) -> None:
        nn.Module.__init__(self)  # keys and queries are those of `multi_head`
        self.multi_head = MultiHead(
            query_dim,
            heads,
            key_dim=annotation_dim,
            width=attention_dim,
            output_dim=annotation_dim,
            dropout=dropout,
        )
        if map_head is not None and map_head > heads:
            raise InputError(f"map_head: there are {heads}; give a number from 1 to {heads}")
        self.map_head = map_head

    @property
    def map_names(self) -> tuple[str, ...]:
        """``mean``, ``head 1``, ``head 2``, ..."""
        return tuple(head_names(self.multi_head.heads))

    @property
    def reported_map(self) -> str:
        """The one whose weights `attend` gives."""
        return "mean" if self.map_head is None else f"head {self.map_head}"

    def report_map(self, name: str) -> None:
        """Give the weights of another one from now on.

        Raises:
            InputError: there is no map of this name.
        """
        super().report_map(name)
        self.map_head = head_names(self.multi_head.heads)[name]

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A2"]:
        """Keys and values, side by side."""
        return torch.cat(self.multi_head.project(annotations), dim=2)

    def attend(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A2"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """The mixed contexts of all heads, and the reported weights."""
        check_every_image_has_a_region(mask)
        projected = KeysValues(*keys.chunk(2, dim=2))
        context, weights = self.multi_head.attend(query, projected, padding_mask(mask), True)
        assert weights is not None
        return Attended(context, map_of(weights, self.map_head))


def with_options(
    kind: type[Attention],
    options: Mapping[str, Option],
    query_dim: int,
    annotation_dim: int,
    attention_dim: int,
) -> Attention:
    """An attention with arguments beyond the widths that every attention takes.

    Args:
        kind: of attention.
        options: its other arguments.
        query_dim: Q.
        annotation_dim: D.
        attention_dim: A.

    Raises:
        InputError: it takes no such option, or the value makes no sense.
    """
    widths = query_dim, annotation_dim, attention_dim
    try:
        inspect.signature(kind).bind(*widths, **options)
    except TypeError as error:
        raise InputError(f"attention_options: {kind.__name__}: {error}") from None
    return kind(*widths, **options)  # type: ignore[arg-type]
