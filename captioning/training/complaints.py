"""What the parser of options complains of, in one line that names the option and the remedy."""

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any

from captioning.training.permitted import PACKAGES

_UNKNOWN = (
    re.compile(r"unrecognized arguments: --(?P<option>[\w.-]+)"),
    re.compile(r"Group '(?P<key>[\w.]+)' does not accept option '(?P<option>[\w.]+)'"),
    re.compile(r"Key '(?P<option>[\w.]+)' is not expected"),
    re.compile(r"Option '(?P<option>[\w.]+)' is not accepted"),
    re.compile(r"does not accept nested key '(?P<option>[\w.]+)'"),
)
_KEY = re.compile(r'Parser key "(?P<key>[\w.]+)":')
_CLASS = re.compile(r"class_path['\"]?[=: ]\s*'(?P<path>[\w.]+)'")
_DENIED = re.compile(r"Importing '(?P<path>[\w.]+)' is not allowed")
_NO_CLASS = re.compile(r"(?:given class_path '|dot import path string: )(?P<path>[\w.]+)")
_OTHER_CLASS = re.compile(
    r"(?:Expected '(?P<path>[\w.]+)' to be|path (?P<other>[\w.]+) does not correspond to) "
    r"a subclass of (?:<class ')?(?P<kind>\w+)"
)
_MISSING = re.compile(r"arguments are required: (?P<options>[\w., -]*\w)")
_DIGITS = re.compile(r"Exceeds the limit \((?P<limit>\d+) digits\).*?has (?P<digits>\d+) digits")
_VALUE = re.compile(r"(?:Got value|Given value): *(?P<value>.*)")
_EXPECTED = re.compile(r"Expected an? (?P<type>.+?)(?:\. Got value.*)?$", re.MULTILINE)
LONGEST = 200


def complaint(message: str, known: Iterable[str]) -> str:
    """The parser's `message` in one line.

    Args:
        message: what the parser said, in however many lines.
        known: the options that it knows, such as ``model.learning_rate``.
    """
    where = _KEY.search(message)
    key = where["key"] if where else ""
    for pattern in _UNKNOWN:
        if unknown := pattern.search(message):
            group = unknown.groupdict().get("key") or key
            return _unknown(group, unknown["option"], [*known, *_parameters(message, group)])
    if missing := _MISSING.search(message):
        return (
            f"{missing['options']} not given; start from a configuration: "
            "captioning train --config configs/shapes.yaml"
        )
    if denied := _DENIED.search(message):
        return f"{key or 'the class'}: {_denied(denied['path'])}"
    if long := _DIGITS.search(message):
        return f"{key}: a number of {long['digits']} digits; give a smaller one"
    kinds = list(_OTHER_CLASS.finditer(message))
    if kinds:
        path = kinds[0]["path"] or kinds[0]["other"]
        wanted = " or ".join(dict.fromkeys(other["kind"] for other in kinds))
        return f"{key}: {path!r} is no {wanted}; give the path of one, as in the files of configs/"
    value, expected = _VALUE.search(message), _EXPECTED.findall(message)
    if value and expected:
        types = " or ".join(dict.fromkeys(map(_line, expected)))
        given = repr(value["value"])
        given = given if len(given) <= LONGEST else f"{given[:LONGEST]}..."
        return f"{key}: {given} does not fit; expected {types[:LONGEST]}"
    if wrong := _NO_CLASS.search(message):
        return (
            f"{key}: there is no class {wrong['path']!r}; give the path of one, "
            "as in the files of configs/"
        )
    text = _line(message[where.end() :] if where else message)
    return f"{f'{key}: ' if key else ''}{text[:LONGEST]}; see captioning train --help"


def first_cause(error: BaseException) -> str:
    """What an error that has passed through several hands began with, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _line(str(error))[:LONGEST] or type(error).__name__


def _denied(path: str) -> str:
    """Why a configuration may not name this, and what to do."""
    module, _, name = path.rpartition(".")
    if path.partition(".")[0] in PACKAGES:
        return (
            f"there is no class {path!r} that a configuration may name; give the path of one, "
            "as in the files of configs/"
        )
    return (
        f"there is no class {name!r} of {module!r} that a configuration may name; "
        f"if the module is your own, give --import {module}"
    )


def _unknown(group: str, option: str, known: Sequence[str]) -> str:
    full = f"{group}.{option}" if group else option
    prefix, _, last = full.rpartition(".")
    beside = {name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == prefix}
    beside.discard("help")
    near = [f"{prefix}.{name}" for name in get_close_matches(last, beside, n=1)]
    near = near or ([] if beside else get_close_matches(full, known, n=1))
    if near:
        return f"no option {full!r}; did you mean {near[0].strip('.')!r}?"
    valid = f"{prefix} has {', '.join(sorted(beside))}"
    return f"no option {full!r}; {valid if prefix and beside else 'see captioning train --help'}"


def _parameters(message: str, key: str) -> list[str]:
    """The options of the classes that the message names."""
    names = []
    for match in _CLASS.finditer(message):
        module, _, name = match["path"].rpartition(".")
        # What the message names need not be a class: nothing is imported for its sake.
        found: Any = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if isinstance(found, type):
            names += [f"{key}.{parameter}" for parameter in signature(found).parameters]
    return names


def _line(text: str) -> str:
    """The text in one line, the names of types as people write them."""
    line = re.sub(r"<class '(\w+)'>", r"\1", " ".join(text.split()))
    return line.replace("NoneType", "null").replace("typing.Literal", "one of ")
