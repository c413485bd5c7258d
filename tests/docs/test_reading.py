"""The page that leads from the paper's equations to the lines."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
ROWS = re.findall(r"^\| (eq\. \d+|section [\d.]+) \|.*\| `([\w.]+)` \|$", PAGE.read_text(), re.M)


def named(path: str) -> Any:
    """The module, class or function of a dotted path."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(path)


def equations(docstring: str) -> set[str]:
    """The numbers after "eq." in a docstring, ranges such as 4-6 written out."""
    numbers: set[str] = set()
    for listed in re.findall(r"eq\. ([\d, -]*\d)", docstring):
        for part in listed.split(","):
            first, _, last = part.strip().partition("-")
            numbers |= {str(n) for n in range(int(first), int(last or first) + 1)}
    return numbers


def test_every_equation_is_on_the_page_in_order() -> None:
    numbers = [int(what.split()[1]) for what, _ in ROWS if what.startswith("eq.")]
    assert numbers == sorted(numbers)
    assert set(numbers) == {*range(1, 15)}


@pytest.mark.parametrize(("what", "where"), ROWS)
def test_an_equation_stands_in_the_docstring_that_is_named(what: str, where: str) -> None:
    docstring = " ".join((named(where).__doc__ or "").split())
    if what.startswith("eq."):
        assert what.split()[1] in equations(docstring)
    else:
        assert what in docstring
