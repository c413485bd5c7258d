"""Reads and checks text of unknown origin in bounded time and memory."""

import codecs
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from reprlib import Repr
from typing import Any

from captioning.errors import InputError

MAX_BYTES = 2 * 1024**3
"""The most bytes of a file of a data set. COCO's instances_train2017.json has 450 MB."""

MAX_YAML_BYTES = 2**20
"""The most characters of a configuration. Those in configs/ have two thousand."""

MAX_YAML_VALUES = 10_000
"""The most values in a configuration, with aliases expanded."""

MAX_DEPTH = 100
"""The deepest nesting of a configuration, which needs about ten. Python limits JSON's nesting."""

MAX_DIGITS = 100
"""The most digits of a whole number: more than any id has, few enough for a float."""

OPENING: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for `os.open`: do not wait for whoever uses the other end of a pipe; and, on Windows, give
the bytes as they are."""

STRING_OR_CONSTANT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|NaN|-?Infinity', re.DOTALL)

_LIMITED = Repr()  # a value may be huge or deeply nested
_LIMITED.maxlevel, _LIMITED.maxdict = 3, 8
_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def address_of(path: str | Path) -> str | None:
    """The address that somebody gave as a path, such as ``s3://bucket/run``; None for a path."""
    first, *rest = Path(path).parts or ("",)
    # A path of an address has lost a slash; a drive of Windows has one letter.
    is_address = rest and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+:", first)
    return "/".join([first, "", *rest]) if is_address else None


@contextmanager
def opened(path: str | Path) -> Iterator[BufferedReader]:
    """An open file. Pipes and devices are refused, since they may be endless.

    Raises:
        InputError: the file is missing or unreadable, or is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | OPENING)
    except FileNotFoundError:
        if address := address_of(path):
            raise InputError(f"{address}: an address, not a file; download it first") from None
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
    """The text of a UTF-8 file, with or without a byte-order mark, or of UTF-16 with one.

    Args:
        path: a regular file.
        limit: the most bytes.

    Raises:
        InputError: the file cannot be read, is not a regular file, is too large, or is
            in another encoding.
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
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save it with the encoding UTF-8") from None


def read_json(path: str | Path, limit: int = MAX_BYTES) -> Any:
    """The value of a UTF-8 JSON file, with or without a byte-order mark.

    Args:
        path: a regular file.
        limit: the most bytes.

    Raises:
        InputError: the file cannot be read, as for `text_of`, or is not JSON, as for `json_of`.
    """
    try:
        return json_of(text_of(path, limit))
    except ValueError as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from None


def json_of(text: str | bytes) -> Any:
    """The value of JSON text.

    If an object repeats a key, the last value counts.

    Raises:
        ValueError: the text is not JSON (NaN and infinities are not), is nested too deeply, or has
            a number with too many digits.
    """
    try:
        return json.loads(text, parse_int=_whole, parse_constant=_refused)
    except _ConstantError as error:
        raise ValueError(f"{error} is not a JSON number{_place_of_constant(text)}") from None
    except RecursionError:  # after some thousand brackets
        raise ValueError("brackets nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


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
        raise InputError(f"{source}: {short(entry)} is not an object; {remedy}")
    if key not in entry:
        raise InputError(f"{source}: {short(entry)} has no {key!r}; {remedy}")
    value = entry[key]
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(_KINDS[kind] for kind in types)
        raise InputError(f"{source}: {key!r} is {short(value)}, not {expected}; {remedy}")
    return value


def short(value: Any) -> str:
    """A value for a message, in at most 60 characters."""
    text = " ".join(_LIMITED.repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_yaml(text: str) -> None:
    """Check that a configuration can be parsed in little time and memory.

    Values are counted with aliases expanded, before the text is parsed.

    Raises:
        yaml.YAMLError: it is too large, nested too deeply, recursive, or not YAML.
    """
    import yaml  # only here, since most callers read JSON

    if len(text) > MAX_YAML_BYTES:
        raise yaml.YAMLError(f"more than {MAX_YAML_BYTES:,} characters")
    total, depth = 0, 0
    sizes: dict[str, int] = {}  # values in each finished collection or scalar, by anchor
    opened: list[tuple[str | None, int]] = []  # anchors, with the number of values before them
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


def check_values(value: Any) -> None:
    """Check a parsed configuration's keys and numbers.

    Raises:
        ValueError: a key is neither text nor a whole number, such as a date.
        OverflowError: a whole number is larger than any float.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for key in part:
                if isinstance(key, bool) or not isinstance(key, str | int):
                    raise ValueError(f"the key {key!r} is not text; put it in quotes")
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, int):
            float(part)


def plain(error: Exception) -> str:
    """A parser's message, without advice about Python's settings."""
    if "integer string conversion" in str(error):
        return "a number of thousands of digits"
    return str(error)


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


class _ConstantError(ValueError):
    """NaN or an infinity."""


def _refused(constant: str) -> None:
    raise _ConstantError(constant)


def _place_of_constant(text: str | bytes) -> str:
    """Where the first NaN or infinity is, which Python's parser does not tell."""
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    for found in STRING_OR_CONSTANT.finditer(text):
        if (start := found.start()) and not found[0].startswith('"'):
            line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
            before = " ".join(text[max(0, start - 40) : start].split())
            return f": line {line} column {column}, after {before!r}"
    return ""
