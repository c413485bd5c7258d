"""What a run of the benchmark is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.machine import Machine
from benchmarks.measure import OURS, TEXTBOOK, Contender
from benchmarks.sizes import Size


@dataclass(frozen=True)
class Setting:
    """What every row needs to know.

    Attributes:
        sizes: that the model is measured at.
        device: where it computes.
        rounds: how often everything is measured.
        machine: with its measured rates.
        photos: JPEG files.
        captions: that the metric report scores.
    """

    sizes: Sequence[Size]
    device: torch.device
    rounds: int
    machine: Machine
    photos: Sequence[Path]
    captions: int

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The textbook, and ours in each precision that the machine has."""
        return (TEXTBOOK, *(one for one in OURS if self.machine.has(one.precision)))

    @property
    def blank(self) -> tuple[Contender, ...]:
        """Ours in the precisions that the machine lacks, whose rows stay blank."""
        return tuple(one for one in OURS if not self.machine.has(one.precision))
