"""What training minimises.

Shapes: B images, N captions per image, T words, L regions.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD


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


def caption_loss(
    cross_entropy: Float[Tensor, ""],
    weights: Float[Tensor, "B N T L"],
    targets: Int[Tensor, "B N T"],
    attention_penalty: float = 1.0,
    words: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """The paper's objective (eq. 14), summed over the captions, per word.

    The paper adds the penalty to a caption's whole log-likelihood; divided by the number of words,
    captions keep that proportion, and losses of batches of other lengths can be compared.

    Args:
        cross_entropy: sum over all words.
        weights: attention over regions for every word.
        targets: the words.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        words: what to divide by, if not the number of words in `targets`.
    """
    real = targets != PAD
    loss = cross_entropy
    if attention_penalty:
        loss = loss + attention_penalty * doubly_stochastic_penalty(weights, real)
    return loss / (real.sum() if words is None else words)
