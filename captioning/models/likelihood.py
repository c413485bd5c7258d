"""Cross-entropy of words, with the layer that scores the vocabulary and without.

Shapes: B images, N captions per image, T words, R words of all captions together, V vocabulary, m
width of what the layer reads.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import PAD
from captioning.models.linear import product, transposed_product

CHUNK = {"cpu": 2**22, "cuda": 2**27}
"""Scores that are in memory at a time, by kind of device: 16 MB in single precision on a CPU, where
larger blocks come fresh from the operating system each time."""


def cross_entropy(
    logits: Float[Tensor, "B N T V"], targets: Int[Tensor, "B N T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum over all words, in nats; PAD does not count.

    Args:
        logits: scores of every word.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
    """
    real = targets != PAD
    precise = logits[real].to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(precise, targets[real], label_smoothing=label_smoothing, reduction="sum")


def linear_cross_entropy(
    x: Float[Tensor, "R m"],
    weight: Float[Tensor, "V m"],
    bias: Float[Tensor, "V"],
    targets: Int[Tensor, "R"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Sum over words of the cross-entropy of softmax(W x + b), in nats.

    The scores of the whole vocabulary are never in memory for all words: their gradients are
    computed with them, some words at a time.

    Args:
        x: one row per word; the scores are computed in its precision.
        weight: W.
        bias: b.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
    """
    with torch.autocast(x.device.type, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, targets, label_smoothing)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> Tensor:
        precision = torch.promote_types(x.dtype, torch.float32)
        total = x.new_zeros((), dtype=precision)
        wanted = any(ctx.needs_input_grad)
        of_x = torch.empty_like(x)
        of_weight, of_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        weight, bias = weight.to(x.dtype), bias.to(x.dtype)
        size = max(1, CHUNK.get(x.device.type, CHUNK["cuda"]) // len(weight))
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            target = targets[rows, None]
            logits = product(x[rows], weight).add_(bias)
            log_probs = logits.log_softmax(dim=1, dtype=precision)
            total -= (1 - smoothing) * log_probs.gather(1, target).sum()
            if smoothing:
                total -= smoothing / len(weight) * log_probs.sum()
            if wanted:
                # The gradient of the scores: probability minus (smoothed) truth. The smoothing's
                # part is the same for all words and added below.
                probs = log_probs.exp_()
                probs.scatter_add_(1, target, probs.new_full((), smoothing - 1).expand_as(target))
                of_bias += probs.sum(0)
                probs = probs.to(x.dtype)
                of_x[rows] = product(probs, weight.t())
                of_weight += transposed_product(probs, x[rows])
        if wanted and smoothing:
            share = smoothing / len(weight)
            of_x -= share * weight.sum(0, dtype=precision)
            of_weight -= share * x.sum(0, dtype=precision)
            of_bias -= share * len(x)
        ctx.save_for_backward(of_x, of_weight, of_bias)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_x, of_weight, of_bias = ctx.saved_tensors
        return of_x * gradient.to(of_x.dtype), of_weight * gradient, of_bias * gradient, None, None
