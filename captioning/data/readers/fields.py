"""Typed access to values from files that may be malformed."""

from pathlib import Path
from reprlib import Repr
from typing import Any

from captioning.errors import InputError

_LIMITED = Repr()  # a value may be huge or deeply nested
_LIMITED.maxlevel, _LIMITED.maxdict = 3, 8

NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def field(entry: Any, key: str, *types: type, source: Path | str, remedy: str) -> Any:
    """`entry[key]`, which must be of one of the `types`.

    Args:
        entry: what should be a JSON object.
        key: name of the value.
        types: any of dict, list, str and int.
        source: the file, and place in it, that the error names.
        remedy: the error's advice.

    Raises:
        InputError: `entry` is no object, has no such key, or a value of another type.
    """
    if not isinstance(entry, dict):
        raise InputError(f"{source}: {short(entry)} is not an object; {remedy}")
    if key not in entry:
        raise InputError(f"{source}: {short(entry)} has no {key!r}; {remedy}")
    value = entry[key]
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(NAMES[kind] for kind in types)
        raise InputError(f"{source}: {key!r} is {short(value)}, not {expected}; {remedy}")
    return value


def short(value: Any) -> str:
    """A value as messages show it, in at most 60 characters."""
    text = " ".join(_LIMITED.repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
