"""Schedules of the learning rate."""

import math
from abc import ABC, abstractmethod

from captioning.numbers import Checked, PositiveCount, Share


def one_cycle(step: int, steps: int, warmup: float) -> float:
    """The learning rate as a share of its highest value: from 1/25 up to 1 and down to nearly 0.

    Both phases follow a cosine (Smith and Topin 2018, in fast.ai's form).

    Args:
        step: counted from 0; after the last one the rate is constant.
        steps: number of steps in the training.
        warmup: share of the steps in which the rate rises.
    """
    low, high, end = 1 / 25, 1.0, 1 / 25e4
    top, last = warmup * steps - 1, steps - 1
    if step < top:
        first, second, way = low, high, step / top
    else:
        first, second, way = high, end, (min(step, last) - top) / max(last - top, 1)
    return second + (first - second) * (1 + math.cos(math.pi * way)) / 2


class Schedule(Checked, ABC):
    """How the learning rate changes, as a share of its highest value."""

    @abstractmethod
    def __call__(self, step: int, steps: int) -> float:
        """The share at a step, counted from 0, of a training with `steps` steps."""


class OneCycle(Schedule):
    """Rises and falls along cosines and ends near 0; see `one_cycle`.

    Args:
        warmup: share of the training in which the learning rate rises.
    """

    def __init__(self, warmup: Share = 0.1) -> None:
        self.warmup = warmup

    def __call__(self, step: int, steps: int) -> float:
        """From 1/25 up to 1 and down to nearly 0."""
        return one_cycle(step, steps, self.warmup)


class InverseSquareRoot(Schedule):
    """Rises linearly, then falls with the root of the step (Vaswani et al. 2017, eq. 3).

    The highest value is the module's learning rate; the paper's is (width x warmup) ^ -0.5.

    Args:
        warmup_steps: number of steps in which the rate rises.
    """

    def __init__(self, warmup_steps: PositiveCount = 10_000) -> None:
        self.warmup_steps = warmup_steps

    def __call__(self, step: int, steps: int) -> float:
        """1 at the last step of the warm-up, independent of `steps`."""
        done = step + 1
        return min(done / self.warmup_steps, (self.warmup_steps / done) ** 0.5)
