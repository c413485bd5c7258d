"""Output layer and cross-entropy together, without holding the logits of all words in memory.

Equals the output layer followed by `captioning.models.losses.cross_entropy`.

Shapes: R words of all captions, V vocabulary, m width of the output layer's input.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.kernels.compiled import Compiled
from captioning.kernels.linear import product, transposed_product

CHUNK = {"cpu": 2**22, "cuda": 2**27}
"""Logits in memory at a time, by kind of device: 16 MB in single precision on a CPU, where larger
blocks would be requested from the operating system each time."""


def linear_cross_entropy(
    x: Float[Tensor, "R m"],
    weight: Float[Tensor, "V m"],
    bias: Float[Tensor, "V"],
    targets: Int[Tensor, "R"],
    label_smoothing: float = 0.0,
    loss_weights: Float[Tensor, "R"] | None = None,
) -> Float[Tensor, ""]:
    """Sum over words of the cross-entropy of softmax(W x + b), in nats.

    Logits and their gradients are computed together, for a few words at a time.

    Args:
        x: one row per word; the logits are computed in its precision.
        weight: W.
        bias: b.
        targets: the words.
        label_smoothing: share of the target's probability spread over the vocabulary.
        loss_weights: factor of each word's loss.
    """
    with torch.autocast(x.device.type, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, targets, label_smoothing, loss_weights)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        loss_weights: Tensor | None,
    ) -> Tensor:
        precision = torch.promote_types(x.dtype, torch.float32)
        counts = x.new_ones(len(x), 1, dtype=precision)
        if loss_weights is not None:
            counts = loss_weights[:, None].to(precision)
        total = x.new_zeros((), dtype=precision)
        wanted = any(ctx.needs_input_grad)
        of_x = torch.empty_like(x)
        # Starts as the first summand to keep its memory layout.
        of_weight, of_bias = None, torch.zeros_like(bias)
        unrounded, weight, bias = weight, weight.to(x.dtype), bias.to(x.dtype)
        size = max(1, CHUNK.get(x.device.type, CHUNK["cuda"]) // len(weight))
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            target = targets[rows, None]
            logits = product(x[rows], weight).add_(bias)
            count = counts[rows]
            likely, of_all, of_scores, of_biases = _likelihoods(logits, target, count, smoothing)
            total -= (1 - smoothing) * (likely * count).sum()
            if smoothing:
                total -= smoothing / len(weight) * (of_all * count).sum()
            if wanted:
                of_bias += of_biases
                of_x[rows] = product(of_scores, weight.t())  # dx = W^T (p - truth)
                part = transposed_product(of_scores, x[rows]).to(unrounded.dtype)  # (p - truth) x^T
                of_weight = part if of_weight is None else of_weight.add_(part)
        if of_weight is None:
            of_weight = torch.zeros_like(unrounded)
        if wanted and smoothing:  # smoothing's constant share of each word in the truth
            share = smoothing / len(weight)
            of_x -= share * counts * weight.sum(0, dtype=precision)
            of_weight -= share * (counts * x).sum(0)
            of_bias -= share * counts.sum()
        ctx.save_for_backward(of_x, of_weight, of_bias)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_x, of_weight, of_bias = ctx.saved_tensors
        of_parameters = of_weight * gradient, of_bias * gradient
        return of_x * gradient.to(of_x.dtype), *of_parameters, None, None, None


class _Likelihoods(NamedTuple):
    """Log-likelihoods in the precision of the loss, and gradients in that of the logits."""

    of_target: Tensor  # (R, 1), its log-probability
    of_all: Tensor  # (R, 1), the sum of all words' log-probabilities
    of_scores: Tensor  # (R, V), gradient of the loss, without smoothing's constant for all words
    of_bias: Tensor  # (V,), the same for the bias


def _likelihoods_at_once(
    logits: Tensor, targets: Tensor, counts: Tensor, smoothing: float
) -> _Likelihoods:
    precise = logits.to(counts.dtype)
    norms = precise.logsumexp(dim=1, keepdim=True)
    of_target = precise.gather(1, targets) - norms
    of_all = precise.sum(dim=1, keepdim=True) - logits.shape[1] * norms
    of_scores = ((precise - norms).exp() * counts).to(logits.dtype)  # p, minus the truth below
    of_true = ((of_target.exp() + smoothing - 1) * counts).to(logits.dtype)
    of_scores = of_scores.scatter(1, targets, of_true)
    return _Likelihoods(of_target, of_all, of_scores, of_scores.sum(0))


def _likelihoods_step_by_step(
    logits: Tensor, targets: Tensor, counts: Tensor, smoothing: float
) -> _Likelihoods:
    log_probs = logits.log_softmax(dim=1, dtype=counts.dtype)
    of_target, of_all = log_probs.gather(1, targets), log_probs.sum(dim=1, keepdim=True)
    of_scores = log_probs.exp_()
    truth = of_scores.new_full((), smoothing - 1).expand_as(targets)
    of_scores.scatter_add_(1, targets, truth).mul_(counts)
    return _Likelihoods(of_target, of_all, of_scores.to(logits.dtype), of_scores.sum(0))


_likelihoods = Compiled(_likelihoods_at_once, plainly=_likelihoods_step_by_step)
