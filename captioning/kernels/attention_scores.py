"""The kernels of attentions for the fast LSTM: scores, and their gradients without a graph.

Shapes: B images, N captions per image, L regions, A attention width.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from captioning.kernels.additive import Energies, add_energy_gradients, exponential
from captioning.models.attention import AdditiveAttention, DotProductAttention


class AttentionKernel(ABC):
    """The fast form of one class of attention.

    Attributes:
        scoring: the parameters that `scores` uses.
    """

    scoring: Sequence[Tensor] = ()

    def prepare(self, keys: Float[Tensor, "B L A"]) -> Float[Tensor, "B L A"]:
        """The plain attention's keys in the form that `scores` takes."""
        return keys

    @abstractmethod
    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """The plain attention's scores from projected queries and prepared keys."""

    @abstractmethod
    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """The gradient of the queries; those of keys and `scoring` are added in place.

        Training's loop over words calls this for every word instead of keeping a graph.
        """


class AdditiveKernel(AttentionKernel):
    """Equals `AdditiveAttention`."""

    def __init__(self, attention: AdditiveAttention) -> None:
        self.scoring = [attention.energy.weight]

    def prepare(self, keys: Float[Tensor, "B L A"]) -> Float[Tensor, "B L A"]:
        """Exponentials."""
        return exponential(keys)

    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """The energies."""
        return Energies.apply(queries, keys, self.scoring[0])

    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """Their gradients."""
        [direction] = scoring_gradients
        return add_energy_gradients(
            gradient, queries, keys, self.scoring[0], keys_gradient, direction
        )


class DotProductKernel(AttentionKernel):
    """Equals `DotProductAttention`."""

    def scores(
        self, queries: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"]
    ) -> Float[Tensor, "B N L"]:
        """Scaled dot products."""
        return queries @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5

    def add_gradients(
        self,
        gradient: Float[Tensor, "B N L"],
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        keys_gradient: Float[Tensor, "B L A"],
        scoring_gradients: Sequence[Tensor],
    ) -> Float[Tensor, "B N A"]:
        """Their gradients."""
        gradient = (gradient / keys.shape[-1] ** 0.5).to(keys.dtype)
        keys_gradient.baddbmm_(gradient.transpose(1, 2), queries)
        return gradient @ keys


def attention_kernel(attention: nn.Module) -> AttentionKernel | None:
    """The kernel of this attention; None if its exact class has none."""
    if type(attention) is AdditiveAttention:
        return AdditiveKernel(attention)
    if type(attention) is DotProductAttention:
        return DotProductKernel()
    return None
