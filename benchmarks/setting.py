"""What a run of the benchmark is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.machine import Machine
from benchmarks.measure import OURS, PEER, TEXTBOOK, Contender
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
    def networks(self) -> Sequence[Size]:
        """The sizes that differ in more than what becomes of annotation vectors."""
        return [size for size in self.sizes if size.projection_dim is None]

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All that train and search, in each precision that the machine has."""
        return tuple(one for one in _ALL if self.machine.has(one.precision))

    @property
    def blank(self) -> tuple[Contender, ...]:
        """Those in the precisions that the machine lacks, whose rows stay blank."""
        return tuple(one for one in _ALL if not self.machine.has(one.precision))


_ALL = (TEXTBOOK, *PEER, *OURS)
