"""The pages that lead from the paper's equations to the lines."""

import importlib
import re
from pathlib import Path

import pytest

from docs._ext import lines

PAGE = lines.REPOSITORY / "docs" / "reading.md"
ROWS = re.findall(r"^\| (eq\. \d+|section [\d.]+) \| .* \|$", PAGE.read_text(), re.MULTILINE)
LINKS = {
    (link["mark"], link["module"].replace("/", "."), link["name"])
    for page in lines.PAGES
    for link in lines.LINK.finditer(page.read_text())
}


def docstrings(module: str, name: str) -> str:
    """Of a class or function, and of the class that it is a method of."""
    parts = [importlib.import_module(module)]
    for part in name.split("."):
        parts.append(getattr(parts[-1], part))
    return " ".join(" ".join((part.__doc__ or "").split()) for part in parts[1:])


def equations(docstring: str) -> set[str]:
    """The numbers after "eq." in a docstring, ranges such as 4-6 written out."""
    numbers: set[str] = set()
    for listed in re.findall(r"eq\. ([\d, -]*\d)", docstring):
        for part in listed.split(","):
            first, _, last = part.strip().partition("-")
            numbers |= {str(n) for n in range(int(first), int(last or first) + 1)}
    return numbers


def test_every_equation_is_on_the_page_in_order() -> None:
    numbers = [int(row.split()[1]) for row in ROWS if row.startswith("eq.")]
    assert numbers == sorted(numbers)
    assert set(numbers) == {*range(1, 15)}
    assert [link["mark"] for link in lines.LINK.finditer(PAGE.read_text())] == ROWS


@pytest.mark.parametrize("page", lines.PAGES, ids=lambda page: page.name)
def test_links_lead_to_the_lines_of_their_equations(page: Path) -> None:
    text = page.read_text()
    assert len(lines.LINK.findall(text)) == len(re.findall(r"\.py#L", text)) > 10
    assert lines.with_anchors(text) == text, "run: python docs/_ext/lines.py"


@pytest.mark.parametrize(("mark", "module", "name"), sorted(LINKS))
def test_an_equation_stands_in_the_docstring(mark: str, module: str, name: str) -> None:
    docstring = docstrings(module, name)
    assert mark in docstring or mark.removeprefix("eq. ") in equations(docstring)
