"""Figures as rows: what was measured, of which implementation, and how it compares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.machine import Machine
from benchmarks.measure import OUR_NAME, Contender, Measured
from benchmarks.work import Work


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured.
        size: at what size.
        implementation: of which implementation.
        precision: in which precision; empty where there is none to choose.
        unit: of the figure.
        figure: the median and the spread of the rounds; none where the machine lacks the
            precision.
        times: of ours alone: how many times better than each other implementation in the same
            precision, that is, more per second, or less time or memory.
        arithmetic: share of the machine's rate of products that the needed arithmetic reaches.
        bytes: share of its rate of copying that the needed bytes reach; above one where caches
            hold them.
    """

    name: str
    size: str
    implementation: str
    precision: str
    unit: str
    figure: Measured | None
    times: dict[str, float] = field(default_factory=dict)
    arithmetic: float | None = None
    bytes: float | None = None


def rate_rows(
    name: str,
    size: str,
    unit: str,
    seconds: Mapping[Contender, Sequence[float]],
    count: int,
    machine: Machine | None = None,
    works: Mapping[Contender, Work] | None = None,
) -> Iterator[Row]:
    """A row per contender, for what is counted per second.

    Args:
        name: what was measured.
        size: at what size.
        unit: of the figures.
        seconds: of every contender's rounds.
        count: how many things were done in one round.
        machine: whose rates the needed work is compared with.
        works: the needed work of one round.
    """
    figures = {
        contender: Measured.of([count / value for value in values])
        for contender, values in seconds.items()
    }
    for contender, figure in figures.items():
        arithmetic = moved = None
        if machine and works:
            work, took = works[contender], count / figure.median
            arithmetic = work.operations / took / machine.product(contender.precision)
            moved = work.bytes / took / machine.copy if work.bytes else None
        times = {
            other.name: figure.median / figures[other].median
            for other in _compared(contender, figures)
        }
        yield Row(name, size, *contender, unit, figure, times, arithmetic, moved)


def cost_rows(
    name: str,
    size: str,
    unit: str,
    costs: Mapping[Contender, Sequence[float]],
) -> Iterator[Row]:
    """A row per contender, for what should be little: seconds, bytes.

    Where ours costs nothing that could be measured, no ratio is told.

    Args:
        name: what was measured.
        size: at what size.
        unit: of the figures.
        costs: of every contender's rounds.
    """
    figures = {contender: Measured.of(values) for contender, values in costs.items()}
    for contender, figure in figures.items():
        times = {
            other.name: figures[other].median / figure.median
            for other in _compared(contender, figures)
            if figure.median
        }
        yield Row(name, size, *contender, unit, figure, times)


def blank_rows(name: str, size: str, unit: str, contenders: Sequence[Contender]) -> Iterator[Row]:
    """A row without a figure per contender that this machine cannot measure."""
    for contender in contenders:
        yield Row(name, size, *contender, unit, None)


def _compared(contender: Contender, others: Iterable[Contender]) -> list[Contender]:
    """What ours is compared with: the others of the same precision. Others are with nothing."""
    if contender.name != OUR_NAME:
        return []
    same = (other for other in others if other.precision == contender.precision)
    return [other for other in same if other.name != OUR_NAME]
