"""What training minimises.

Shapes: B images, N captions per image, T words, L regions, V vocabulary.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD


def cross_entropy(
    logits: Float[Tensor, "B N T V"], targets: Int[Tensor, "B N T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean over all words, in nats; PAD does not count.

    Args:
        logits: scores of every word.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
    """
    real = targets != PAD
    return F.cross_entropy(logits[real].float(), targets[real], label_smoothing=label_smoothing)


def doubly_stochastic_penalty(
    weights: Float[Tensor, "B N T L"],
    real: Bool[Tensor, "B N T"],
    mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, ""]:
    """How unevenly the words of a caption look at the regions (Xu et al. 2015, eq. 14).

    The squared difference between the attention that a region gets over all words and its fair
    share T / L, summed over regions and averaged over captions. The paper's target is one instead
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
    captions = real.any(dim=-1)
    return (difference.square().sum(dim=-1) * captions).sum() / captions.sum()


def caption_loss(
    logits: Float[Tensor, "B N T V"],
    weights: Float[Tensor, "B N T L"],
    targets: Int[Tensor, "B N T"],
    label_smoothing: float = 0.0,
    attention_penalty: float = 1.0,
) -> Float[Tensor, ""]:
    """The paper's objective (eq. 14) divided by the mean length of the captions.

    The paper adds the penalty to a caption's whole log-likelihood; per word, that is the mean
    cross-entropy plus the penalty over the mean number of words.

    Args:
        logits: scores of every word.
        weights: attention over regions for every word.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
    """
    real = targets != PAD
    length = real.sum() / real.any(dim=-1).sum()
    loss = cross_entropy(logits, targets, label_smoothing)
    if attention_penalty:
        loss = loss + attention_penalty * doubly_stochastic_penalty(weights, real) / length
    return loss
