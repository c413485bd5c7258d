"""Figures as rows, and rows as a Markdown table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.machine import Machine
from benchmarks.measure import TEXTBOOK, Contender, Measured
from benchmarks.work import Work

HEADS = (
    "measured",
    "size",
    "implementation",
    "median",
    "spread",
    "ratio",
    "arithmetic",
    "bytes",
)


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured.
        size: at what size.
        contender: of which implementation, in which precision.
        unit: of the figure.
        figure: the median and the spread of the rounds; none where the machine lacks the
            contender's precision.
        ratio: how many times better than the textbook, or than what else stands for comparison:
            more per second, or less time or memory.
        arithmetic: share of the machine's rate of products that the needed arithmetic reaches.
        bytes: share of its rate of copying that the needed bytes reach; above one where caches
            hold them.
    """

    name: str
    size: str
    contender: str
    unit: str
    figure: Measured | None
    ratio: float | None = None
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
    reference: Contender = TEXTBOOK,
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
        reference: what the others are compared with.
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
        ratio = figure.median / figures[reference].median if reference in figures else None
        yield Row(name, size, str(contender), unit, figure, ratio, arithmetic, moved)


def cost_rows(
    name: str,
    size: str,
    unit: str,
    costs: Mapping[Contender, Sequence[float]],
    reference: Contender = TEXTBOOK,
) -> Iterator[Row]:
    """A row per contender, for what should be little: seconds, bytes.

    Args:
        name: what was measured.
        size: at what size.
        unit: of the figures.
        costs: of every contender's rounds.
        reference: what the others are compared with.
    """
    figures = {contender: Measured.of(values) for contender, values in costs.items()}
    for contender, figure in figures.items():
        ratio = figures[reference].median / figure.median if reference in figures else None
        yield Row(name, size, str(contender), unit, figure, ratio)


def blank_rows(name: str, size: str, unit: str, contenders: Sequence[Contender]) -> Iterator[Row]:
    """A row without a figure per contender that this machine cannot measure."""
    for contender in contenders:
        yield Row(name, size, str(contender), unit, None)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = [HEADS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    if row.figure is None:
        return (row.name, row.size, row.contender, *[""] * (len(HEADS) - 3))
    return (
        row.name,
        row.size,
        row.contender,
        f"{_digits(row.figure.median)} {row.unit}",
        f"{_digits(row.figure.least)} to {_digits(row.figure.most)}",
        "" if row.ratio is None else _digits(row.ratio),
        "" if row.arithmetic is None else f"{row.arithmetic:.1%}",
        "" if row.bytes is None else f"{row.bytes:.1%}",
    )


def _digits(value: float) -> str:
    """The number with three digits, or more where it is large."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"
