"""Rows as Markdown tables: one line per measured thing and size, ratios of equal precision only."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.measure import OUR_NAME, OURS, PEER, TEXTBOOK, Contender, Measured
from benchmarks.rows import Row

OURS_FP32, OURS_BF16 = OURS
PEER_FP32, PEER_BF16 = PEER

Group = Mapping[Contender, Row]
"""The rows of one measured thing at one size."""

DECODERS = (
    "measured",
    "size",
    "textbook",
    "peer",
    "ours",
    "times peer",
    "times textbook",
    "bf16: peer",
    "bf16: ours",
    "bf16: times peer",
)

SPREADS = (
    "least to most of",
    "size",
    "textbook",
    "peer",
    "ours",
    "arithmetic",
    "bf16: peer",
    "bf16: ours",
    "bf16: arithmetic",
)

OTHERS = ("measured", "size", "compared with", "its figure", "ours", "times")


def tables(rows: Sequence[Row]) -> str:
    """The tables of a run: the decoder's, its spreads, and all else."""
    groups = list(_groups(rows))
    decoders = [group for group in groups if PEER_FP32 in group]
    others = [group for group in groups if PEER_FP32 not in group]
    parts = []
    if decoders:
        parts.append(_markdown(DECODERS, map(_compared, decoders)))
        parts.append(_markdown(SPREADS, map(_spreads, decoders)))
    if others:
        parts.append(_markdown(OTHERS, map(_other, others)))
    return "\n\n".join(parts)


def _groups(rows: Sequence[Row]) -> Iterator[Group]:
    groups: dict[tuple[str, str], dict[Contender, Row]] = {}
    for row in rows:
        contender = Contender(row.implementation, row.precision)
        groups.setdefault((row.name, row.size), {})[contender] = row
    yield from groups.values()


def _compared(group: Group) -> Sequence[str]:
    return (
        *_what(group),
        _median(group, TEXTBOOK),
        _median(group, PEER_FP32),
        _median(group, OURS_FP32),
        _times(group, OURS_FP32, PEER_FP32.name),
        _times(group, OURS_FP32, TEXTBOOK.name),
        _median(group, PEER_BF16),
        _median(group, OURS_BF16),
        _times(group, OURS_BF16, PEER_BF16.name),
    )


def _spreads(group: Group) -> Sequence[str]:
    return (
        *_what(group),
        _spread(group, TEXTBOOK),
        _spread(group, PEER_FP32),
        _spread(group, OURS_FP32),
        _arithmetic(group, OURS_FP32),
        _spread(group, PEER_BF16),
        _spread(group, OURS_BF16),
        _arithmetic(group, OURS_BF16),
    )


def _other(group: Group) -> Sequence[str]:
    """A line of what has one other implementation or none, with its spread in brackets."""
    ours = next(one for one in group if one.name == OUR_NAME)
    other = next((one for one in group if one.name != OUR_NAME), None)
    return (
        *_what(group),
        "" if other is None else str(other),
        "" if other is None else _whole(group, other),
        _whole(group, ours),
        "" if other is None else _times(group, ours, other.name),
    )


def _what(group: Group) -> tuple[str, str]:
    row = next(iter(group.values()))
    return f"{row.name}, {row.unit}", row.size


def _figure(group: Group, contender: Contender) -> Measured | None:
    return group[contender].figure if contender in group else None


def _median(group: Group, contender: Contender) -> str:
    figure = _figure(group, contender)
    return "" if figure is None else _digits(figure.median)


def _spread(group: Group, contender: Contender) -> str:
    figure = _figure(group, contender)
    if figure is None:
        return ""
    if figure.rounds == 1:
        return "one round"
    return f"{_digits(figure.least)} to {_digits(figure.most)}"


def _whole(group: Group, contender: Contender) -> str:
    return f"{_median(group, contender)} ({_spread(group, contender)})"


def _times(group: Group, contender: Contender, other: str) -> str:
    times = group[contender].times if contender in group else {}
    return _digits(times[other]) if other in times else ""


def _arithmetic(group: Group, contender: Contender) -> str:
    share = group[contender].arithmetic if contender in group else None
    return "" if share is None else f"{share:.0%}"


def _digits(value: float) -> str:
    """The number with three digits, or more where it is large."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def _markdown(heads: Sequence[str], lines: Iterator[Sequence[str]]) -> str:
    """A table whose columns are as wide as their widest cell."""
    table = [heads, *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    texts = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in table
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])
