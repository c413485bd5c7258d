"""How the learning rate rises and falls over a training."""

import math
from abc import ABC, abstractmethod

from captioning.numbers import Checked, PositiveCount, Share


def one_cycle(step: int, steps: int, warmup: float) -> float:
    """The learning rate over its highest value: from 1/25 up to 1 and down to nearly 0.

    Both ways follow a cosine (Smith and Topin 2018, in the form that fast.ai gave it).

    Args:
        step: counted from 0; beyond the last one the rate stays.
        steps: of the whole training.
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
        """The share at a step, counted from 0, of a training of so many steps."""


class OneCycle(Schedule):
    """Up and down along cosines, so that the training ends at nearly 0; see `one_cycle`.

    Args:
        warmup: share of the training in which the learning rate rises.
    """

    def __init__(self, warmup: Share = 0.1) -> None:
        self.warmup = warmup

    def __call__(self, step: int, steps: int) -> float:
        """From 1/25 up to 1 and down to nearly 0."""
        return one_cycle(step, steps, self.warmup)


class InverseSquareRoot(Schedule):
    """Up along a line, then down with the root of the step (Vaswani et al. 2017, eq. 3).

    The highest value is the module's learning rate; the paper's own is (width x warm-up) ^ -0.5.

    Args:
        warmup_steps: of the rise.
    """

    def __init__(self, warmup_steps: PositiveCount = 10_000) -> None:
        self.warmup_steps = warmup_steps

    def __call__(self, step: int, steps: int) -> float:
        """Up to 1 at the last step of the warm-up, whatever the length of the training."""
        done = step + 1
        return min(done / self.warmup_steps, (self.warmup_steps / done) ** 0.5)
