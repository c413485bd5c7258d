"""Weights averaged over the steps of a training."""

from collections.abc import Sequence

import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor


class ExponentialAverage(WeightAveraging):
    """Validates and keeps an exponential moving average of the weights.

    Unlike in Lightning's `EMAWeightAveraging`, the first steps count for less, so that the average
    soon forgets the random start; and what does not change stays the same to the last bit, so that
    a frozen encoder remains the one that features were computed by.

    Args:
        decay: what is kept of the average at each step; lower at first, (1 + step) / (10 + step).
    """

    def __init__(self, decay: float = 0.999) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self._average)
        self.decay = decay

    @torch.no_grad()
    def _average(self, averages: Sequence[Tensor], weights: Sequence[Tensor], step: Tensor) -> None:
        decay = min(self.decay, (1 + step.item()) / (10 + step.item()))
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, 1 - decay)
