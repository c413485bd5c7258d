"""Weights averaged over the steps of a training."""

from collections.abc import Sequence

import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from captioning.numbers import Checked, Share


class ExponentialAverage(Checked, WeightAveraging):
    """Validates and keeps an exponential moving average of the weights.

    Unlike in Lightning's `EMAWeightAveraging`, the average soon forgets a random start; and what
    does not change stays the same to the last bit, so that a frozen encoder remains the one that
    features were computed by.

    A training that goes on from a good model does better to keep some of it: weights between the
    old model's and the new one's know more about images that neither has seen (Wortsman et al.
    2022, "Robust fine-tuning of zero-shot models").

    Args:
        decay: what is kept of the average at each step.
        keeps_start: the decay holds from the first step on, so that after n steps decay^n of the
            average are the weights that the training began with. Otherwise it is lower at first,
            (1 + step) / (10 + step).
    """

    def __init__(self, decay: Share = 0.999, keeps_start: bool = False) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self._average)
        self.decay = decay
        self.keeps_start = keeps_start

    @torch.no_grad()
    def _average(self, averages: Sequence[Tensor], weights: Sequence[Tensor], step: Tensor) -> None:
        decay = self.decay
        if not self.keeps_start:
            decay = min(decay, (1 + step.item()) / (10 + step.item()))
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, 1 - decay)
