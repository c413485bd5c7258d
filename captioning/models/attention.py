"""Soft attention: which regions of the image matter for the next word.

Shapes: B images, N captions (queries) per image, L regions, D annotation width, Q query width,
A attention width.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.models.energies import Energies, add_energy_gradients, exponential
from captioning.models.linear import Linear
from captioning.numbers import AnnotationWidth, Width


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

    def __init__(
        self, query_dim: AnnotationWidth, annotation_dim: AnnotationWidth, attention_dim: Width
    ) -> None:
        super().__init__()
        self.key = Linear(annotation_dim, attention_dim)
        self.query = Linear(query_dim, attention_dim, bias=False)

    @property
    def scoring(self) -> list[nn.Parameter]:
        """The parameters that `scores` uses: all but those of key and query."""
        return [
            parameter
            for name, parameter in self.named_parameters()
            if not name.startswith(("key.", "query."))
        ]

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The keys, computed once per image and shared by all its captions and words."""
        return self.key(annotations)

    @abstractmethod
    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """How well each region fits each projected query, before the softmax."""

    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """The gradient of `scores` by the queries; those by keys and `scoring` are added in place.

        The training's word loop calls this for every word instead of keeping a graph. An attention
        may override it with something faster that gives the same.
        """
        with torch.enable_grad():
            inputs = [part.detach().requires_grad_() for part in (queries, keys)]
            scores = self.scores(inputs[0], inputs[1])
            of_queries, of_keys, *of_scoring = torch.autograd.grad(
                scores, [*inputs, *self.scoring], gradient.to(scores.dtype)
            )
        keys_gradient += of_keys
        for total, part in zip(scoring_gradients, of_scoring, strict=True):
            total += part
        return of_queries

    def forward(
        self,
        query: Float[Tensor, "B N Q"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """Weights over regions for every query, and the contexts they give."""
        return self.attend(self.query(query), keys, annotations, mask)

    def attend(
        self,
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        annotations: Float[Tensor, "B L D"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> Attended:
        """The same from projected queries."""
        weights = masked_softmax(self.scores(queries, keys), mask)
        return Attended(weights.to(annotations.dtype) @ annotations, weights)


class AdditiveAttention(Attention):
    """A perceptron scores each pair of query and key (Bahdanau et al. 2015; Xu et al. 2015, eq. 4).

    e = v . tanh(W_a a + W_h h); the arithmetic is in `captioning.models.energies`, which is why
    keys are exponentials here.
    """

    def __init__(
        self, query_dim: AnnotationWidth, annotation_dim: AnnotationWidth, attention_dim: Width
    ) -> None:
        super().__init__(query_dim, annotation_dim, attention_dim)
        self.energy = nn.Linear(attention_dim, 1, bias=False)

    def project(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The keys as exp(2 W_a a), at least in single precision."""
        return exponential(self.key(annotations))

    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """The energies e of the class's formula."""
        return Energies.apply(queries, keys, self.energy.weight)

    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """The same without a graph."""
        [direction] = scoring_gradients
        return add_energy_gradients(
            gradient, queries, keys, self.energy.weight, keys_gradient, direction
        )


class DotProductAttention(Attention):
    """The scaled dot product of query and key (Luong et al. 2015; Vaswani et al. 2017, eq. 1)."""

    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Dot products divided by the square root of A."""
        return queries @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5

    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """The same without a graph."""
        gradient = (gradient / keys.shape[-1] ** 0.5).to(keys.dtype)
        keys_gradient.baddbmm_(gradient.transpose(1, 2), queries)
        return gradient @ keys
