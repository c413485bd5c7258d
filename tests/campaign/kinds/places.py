"""Values within nested dicts and lists, replaced, removed and added."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

Place = tuple[Any, Any]
"""A dict or list, and the key of a value in it."""

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 0.5, -0.5, 1e308, 1e-320, float("nan"), float("inf"), float("-inf")),
    *(2**31, 2**63, 10**20, -(10**20), 10**400, True, False),
)

VALUES: tuple[Any, ...] = (
    *NUMBERS,
    *(None, "", "x", "\n", "\x1b[31mred", "\ud800", "a" * 10_000, "0", "nan", "\0"),
    *([], {}, [[]], [None], {"": None}, [0] * 1000, {"class": "os.system"}, ["x", 1]),
)


def places(value: Any) -> Iterator[Place]:
    """All values in nested dicts and lists, by where they are."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def changed(value: Any, random: Random, values: Sequence[Any] = VALUES) -> str:
    """Change one to three values anywhere in `value`; returns what was changed, in a line."""
    told = []
    for _ in range(random.choice((1, 1, 1, 3))):
        found = list(places(value))
        if not found:
            break
        holder, key = random.choice(found)
        how = random.random()
        if how < 0.12:
            del holder[key]
            told.append(f"without {str(key)[:40]!r}")
        elif how < 0.2 and isinstance(holder, list):
            holder.append(holder[key])
            told.append(f"{str(key)[:40]!r} doubled")
        elif how < 0.25 and isinstance(holder, dict):
            holder[random.choice(("", "x", "\x1b[31m", "class", "id"))] = holder[key]
            told.append(f"{str(key)[:40]!r} under another key")
        else:
            holder[key] = random.choice(values)
            told.append(f"{str(key)[:40]}: {_short(holder[key])}")
    return ", ".join(told)


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) > 10**30:
        return "an integer of many digits"
    return repr(value)[:40]
