"""Entries of JSON and tables: their places in files, their fields, and those that are malformed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from captioning.data.readers.data_set import MALFORMED, Problem
from captioning.errors import InputError, format_value

Parsed = TypeVar("Parsed")


class Entry(NamedTuple):
    """A row of a table or an element of a JSON list, as read."""

    source: str  # the file and the kind of its entries, for messages: captions.json: annotation
    key: int | str  # its number there, or its name
    value: Any

    @property
    def place(self) -> str:
        """The place for messages: ``captions.json: annotation 1``."""
        return f"{self.source} {self.key}"


def numbered(source: str, values: Iterable[Any]) -> Iterator[Entry]:
    """Entries whose places are numbered from 1: ``captions.json: annotation 1`` and so on."""
    return (Entry(source, number, value) for number, value in enumerate(values, start=1))


def parse_entries(
    entries: Iterable[Entry], parse: Callable[[Any], Parsed], split: str | None = None
) -> tuple[list[Parsed], list[Problem]]:
    """Parse the values of entries; those that `parse` refuses become problems of the split."""
    parsed: list[Parsed] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            parsed.append(parse(entry.value))
        except (ValueError, RecursionError, InputError) as error:
            problems.append(Problem(MALFORMED, f"{entry.place}: {error}", split))
    return parsed, problems


def field(entry: Any, key: str, *types: type) -> Any:
    """`entry[key]`; raises ValueError unless it is of one of the types."""
    if not isinstance(entry, dict) or key not in entry:
        raise ValueError(f"{format_value(entry)} has no {key!r}")
    if not isinstance(entry[key], types) or isinstance(entry[key], bool):
        expected = " or ".join(expected_type.__name__ for expected_type in types)
        raise ValueError(f"{key!r} is {format_value(entry[key])}, not {expected}")
    return entry[key]


def shown_names(names: Iterable[object]) -> str:
    """Names for a message, cut off after 200 characters; a broken file may have thousands."""
    return ", ".join(map(str, names))[:200] or "none"
