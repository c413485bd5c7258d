"""Seconds that things take, measured in turn so that a noisy machine disturbs all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

FEWEST = 3
"""Rounds that are measured however long they take, unless fewer are asked for."""

PATIENCE = 60.0
"""Seconds after which no further round begins."""


class Contender(NamedTuple):
    """One of the implementations that are compared.

    Attributes:
        name: ``ours``, ``textbook``, ``peer`` or what else stands for comparison.
        precision: ``fp32`` or ``bf16``; empty where there is none to choose.
    """

    name: str
    precision: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.precision}" if self.precision else self.name


OUR_NAME = "ours"

TEXTBOOK = Contender("textbook", "fp32")
PEER = (Contender("peer", "fp32"), Contender("peer", "bf16"))
OURS = (Contender(OUR_NAME, "fp32"), Contender(OUR_NAME, "bf16"))


@dataclass(frozen=True)
class Measured:
    """The values of all rounds in brief.

    Attributes:
        median: of the rounds.
        least: of the rounds.
        most: of the rounds.
        rounds: how many.
    """

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        """The values of the rounds in brief."""
        return cls(statistics.median(values), min(values), max(values), len(values))


def interleaved(
    tasks: Mapping[Contender, Callable[[], object]], rounds: int, device: torch.device
) -> dict[Contender, list[float]]:
    """Seconds of every task in every round, after one round that does not count.

    The tasks take turns, A A B B, and only the second time counts: before the first, another task
    has had the memory and the caches, as nothing has between the steps of a training. Where rounds
    are slow, `FEWEST` of them must do.

    Args:
        tasks: what to measure.
        rounds: how many are wanted.
        device: where the tasks compute; a GPU has finished before the clock is read.
    """
    seconds: dict[Contender, list[float]] = {contender: [] for contender in tasks}
    for task in tasks.values():
        task()
    began = time.perf_counter()
    for number in range(rounds):
        if number >= FEWEST and time.perf_counter() - began > PATIENCE:
            break
        for contender, task in tasks.items():
            task()
            seconds[contender].append(_seconds(task, device))
    return seconds


def fastest(task: Callable[[], object], rounds: int, device: torch.device) -> float:
    """Seconds of the fastest round, which other work on the machine has disturbed least."""
    task()
    return min(_seconds(task, device) for _ in range(rounds))


def _seconds(task: Callable[[], object], device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    task()
    _finish(device)
    return time.perf_counter() - began


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
