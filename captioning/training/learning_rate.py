"""How the learning rate rises and falls over a training."""

import math


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
