"""Reads text and JSON of unknown origin; what is wrong with a file is one line that names it."""

import codecs
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from captioning.errors import InputError, reading, shown

MAX_BYTES = 2 * 1024**3
"""The most bytes of a file of a data set. COCO's instances_train2017.json has 450 MB."""

_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}

short = shown


@contextmanager
def opened(path: str | Path) -> Iterator[BufferedReader]:
    """An open file. Pipes and devices are refused, since they may be endless.

    Raises:
        InputError: the file is missing or unreadable, or is not a regular file.
    """
    with reading(path):
        if re.match(r"\w\w+:/", str(path)):
            raise InputError(f"{path}: an address, not a file; download it first")
        if Path(path).exists() and not Path(path).is_file():
            kind = "a folder" if Path(path).is_dir() else "a pipe or a device"
            raise InputError(f"{path}: {kind}; give a regular file")
        file = Path(path).open("rb")  # noqa: SIM115 (closed below, where errors are the caller's)
    with file:
        yield file


def text_of(path: str | Path, limit: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark, or of UTF-16 with one.

    Args:
        path: a regular file.
        limit: the most bytes.

    Raises:
        InputError: the file cannot be read, is not a regular file, is too large, or is
            in another encoding.
    """
    with opened(path) as file, reading(path):
        if os.fstat(file.fileno()).st_size > limit:
            raise InputError(f"{path}: more than {limit:,} bytes")
        content = file.read()
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        try:
            return content.decode("utf-16" if is_wide else "utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{path}: not UTF-8 text; save it with the encoding UTF-8") from None


def read_json(path: str | Path, limit: int = MAX_BYTES) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: the file cannot be read, as for `text_of`, or is not JSON.
    """
    text = text_of(path, limit)
    with reading(path):
        return json_of(text)


def json_of(text: str | bytes) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets nested too deep") from None


def field(entry: Any, key: str, *types: type, source: Path | str, remedy: str) -> Any:
    """`entry[key]`, which must be of one of the `types`.

    Args:
        entry: what should be a JSON object.
        key: name of the value.
        types: any of dict, list, str and int.
        source: the file, and place in it, that the error names.
        remedy: the error's advice.

    Raises:
        InputError: `entry` is not an object, lacks the key, or has a value of another type.
    """
    if not isinstance(entry, dict):
        raise InputError(f"{source}: {shown(entry)} is not an object; {remedy}")
    if key not in entry:
        raise InputError(f"{source}: {shown(entry)} has no {key!r}; {remedy}")
    value = entry[key]
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(_KINDS[kind] for kind in types)
        raise InputError(f"{source}: {key!r} is {shown(value)}, not {expected}; {remedy}")
    return value
