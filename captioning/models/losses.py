"""Losses (Xu et al. 2015, eq. 14).

Shapes: B images, N captions per image, T words, L regions, V vocabulary.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD


def cross_entropy(
    logits: Float[Tensor, "B N T V"],
    targets: Int[Tensor, "B N T"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Negative log-likelihood of the targets, summed over all words, in nats, without PAD.

    Args:
        logits: scores of every word.
        targets: the next words.
        label_smoothing: share of the target's probability spread over the vocabulary.
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(
        precise.flatten(0, 2),
        targets.flatten(),
        ignore_index=PAD,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return losses.sum()


def doubly_stochastic_penalty(
    weights: Float[Tensor, "B N T L"], mask: Bool[Tensor, "B N T"]
) -> Float[Tensor, ""]:
    """Penalty on uneven attention over the regions (Xu et al. 2015, eq. 14).

    The squared difference between the attention that a region gets over all words and its even
    share T / L, summed over regions and captions. The paper's target is one. As the weights of a
    word sum to one, the two penalties differ by a constant: the gradient is the paper's, and even
    coverage costs nothing. `mask` is true for words, false for padding.
    """
    coverage = (weights * mask[..., None]).sum(dim=2)  # (B, N, L)
    difference = coverage - coverage.sum(dim=-1, keepdim=True) / weights.shape[-1]
    return difference.square().sum()
