"""Values out of files that may not be what they claim to be."""

from pathlib import Path
from typing import Any

from captioning.errors import InputError

NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def field(entry: Any, key: str, *types: type, source: Path | str, remedy: str) -> Any:
    """`entry[key]`, which must be of one of the `types`.

    Args:
        entry: what should be a JSON object.
        key: name of the value.
        types: any of dict, list, str and int.
        source: the file, and place in it, that the error names.
        remedy: what the error tells to do.

    Raises:
        InputError: `entry` is no object, has no such key, or a value of another type.
    """
    if not isinstance(entry, dict):
        raise InputError(f"{source}: {_short(entry)} is not an object; {remedy}")
    if key not in entry:
        raise InputError(f"{source}: {_short(entry)} has no {key!r}; {remedy}")
    value = entry[key]
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(NAMES[kind] for kind in types)
        raise InputError(f"{source}: {key!r} is {_short(value)}, not {expected}; {remedy}")
    return value


def text_of(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark.

    Raises:
        InputError: the file is missing or no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save it with the encoding UTF-8") from None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
