"""What training adds to the cross-entropy of words.

Shapes: B images, N captions per image, T words, L regions.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def doubly_stochastic_penalty(
    weights: Float[Tensor, "B N T L"],
    real: Bool[Tensor, "B N T"],
    mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, ""]:
    """How unevenly the words of a caption look at the regions (Xu et al. 2015, eq. 14).

    The squared difference between the attention that a region gets over all words and its fair
    share T / L, summed over regions and over captions. The paper's target is one instead
    of the fair share: since the weights of a word sum to one, this differs by a constant that
    depends on T and L only, so the gradient is the paper's, and even coverage costs nothing.

    Args:
        weights: attention over regions for every word.
        real: True for words, False for padding.
        mask: True where a region may be attended.
    """
    coverage = (weights * real[..., None]).sum(dim=2)  # (B, N, L)
    regions = weights.shape[-1] if mask is None else mask.sum(dim=1)[:, None, None]
    difference = coverage - coverage.sum(dim=-1, keepdim=True) / regions
    if mask is not None:
        difference = difference * mask[:, None]
    return difference.square().sum()  # a caption of padding alone covers nothing, fairly
