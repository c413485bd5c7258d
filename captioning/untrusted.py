"""Text of unknown origin: read, parsed and refused in bounded time and memory."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from captioning.errors import InputError

MAX_BYTES = 2 * 1024**3
"""Of a data set's file. COCO's largest, instances_train2017.json, has 450 MB."""

MAX_YAML_BYTES = 2**20
"""Of a configuration. Those of configs/ have two kilobytes."""

MAX_YAML_VALUES = 10_000
"""In a configuration, each counted as often as aliases repeat it."""

MAX_DEPTH = 100
"""Brackets within brackets of a configuration, which needs ten. JSON's are bounded by Python."""

MAX_DIGITS = 100
"""Of a whole number: more than any id has, and few enough that the number fits into a float."""


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file to read from. Nothing is read of pipes and devices, which may have no end.

    Raises:
        InputError: the file is missing, unreadable or no regular file.
    """
    try:
        # Opening a pipe would wait for whoever writes to it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except ValueError:
        raise InputError(f"{str(path)!r}: not a file name; check the path") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"{path}: {kind}; give a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def text_of(path: str | Path, limit: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark.

    Args:
        path: a regular file.
        limit: the most bytes that it may have.

    Raises:
        InputError: the file cannot be read, is no regular file, too large or no UTF-8 text.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = b"" if size > limit else file.read(limit + 1)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); try again") from None
    if max(size, len(content)) > limit:
        raise InputError(f"{path}: more than {limit:,} bytes; give a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save it with the encoding UTF-8") from None


def read_json(path: str | Path, limit: int = MAX_BYTES) -> Any:
    """The value of a UTF-8 JSON file, with or without a byte-order mark.

    Args:
        path: a regular file.
        limit: the most bytes that it may have.

    Raises:
        InputError: the file is missing or unreadable, as by `text_of`, or no JSON, as by `json_of`.
    """
    try:
        return json_of(text_of(path, limit))
    except ValueError as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from None


def json_of(text: str | bytes) -> Any:
    """The value of JSON text.

    Of a key that an object has twice, the last value counts.

    Raises:
        ValueError: it is no JSON, which NaN and infinities are not, or has brackets too deep or a
            number too long.
    """
    try:
        return json.loads(text, parse_int=_whole, parse_constant=_refused)
    except RecursionError:  # after some thousand brackets
        raise ValueError("brackets nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def check_yaml(text: str) -> None:
    """Nothing, where a configuration's text can be parsed in little time and memory.

    Its aliases are counted as what they stand for, before anything is made of them.

    Raises:
        yaml.YAMLError: it is too large, nested too deep or recursive, or no YAML.
    """
    import yaml  # late: not everybody who reads JSON reads YAML

    if len(text) > MAX_YAML_BYTES:
        raise yaml.YAMLError(f"more than {MAX_YAML_BYTES:,} characters")
    total, depth = 0, 0
    sizes: dict[str, int] = {}  # of what has an anchor and has ended
    opened: list[tuple[str | None, int]] = []  # anchors, and how many values came before
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                raise yaml.YAMLError(f"the alias *{anchor} stands for nothing, or for itself")
            total += sizes[anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if anchor is not None:
                sizes[anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((anchor, total))
            total, depth = total + 1, depth + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"brackets nested deeper than {MAX_DEPTH}")
        if total > MAX_YAML_VALUES:
            raise yaml.YAMLError(f"more than {MAX_YAML_VALUES:,} values, aliases included")


def check_keys(value: Any) -> None:
    """Nothing, where every key of a parsed configuration is text or a whole number.

    Raises:
        ValueError: another key, such as a date or null.
    """
    for part in _parts(value):
        for key in part if isinstance(part, dict) else ():
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise ValueError(f"the key {key!r} is no text; put it in quotes")


def check_numbers(value: Any) -> None:
    """Nothing, where every whole number of a parsed configuration has a place among floats.

    Raises:
        OverflowError: one is larger than any float.
    """
    for part in _parts(value):
        if isinstance(part, int):
            float(part)


def plain(error: Exception) -> str:
    """What a parser raises, in words that do not tell Python's settings."""
    if "integer string conversion" in str(error):
        return "a number of thousands of digits"
    return str(error)


def _parts(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        )


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
