"""What training minimises.

Shapes: B images, N captions per image, T words, L regions, V vocabulary.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD


def cross_entropy(
    logits: Float[Tensor, "B N T V"],
    targets: Int[Tensor, "B N T"],
    label_smoothing: float = 0.0,
    importance: Float[Tensor, "B N"] | None = None,
    never: Sequence[int] = (),
) -> Float[Tensor, ""]:
    """Sum over all words, in nats; PAD does not count.

    Args:
        logits: scores of every word.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
        importance: how much the words of each caption count, of either sign; one if none.
        never: words without probability; not together with label smoothing.
    """
    real = targets != PAD
    precise = logits[real].to(torch.promote_types(logits.dtype, torch.float32))
    precise = precise.index_fill(1, torch.tensor(never, device=logits.device).long(), -torch.inf)
    if importance is None:
        importance = precise.new_ones(targets.shape[:2])
    of_words = F.cross_entropy(
        precise, targets[real], label_smoothing=label_smoothing, reduction="none"
    )
    return of_words @ importance[..., None].expand(targets.shape)[real].to(of_words.dtype)


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
