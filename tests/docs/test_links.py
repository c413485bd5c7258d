"""Links of the pages that are read in the repository lead to files, headings, and equations."""

import importlib
import re
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors.index import slugify

from captioning.commands import COMMANDS
from docs._ext.equations import LINK

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

READING = DOCS / "reading.md"
ROWS = re.findall(r"^\| (eq\. \d+|section [\d.]+) \| .* \|$", READING.read_text(), re.MULTILINE)
EQUATIONS = {
    (link["mark"], link["module"].replace("/", "."), link["name"])
    for page in (READING, REPOSITORY / "notebooks/attention.ipynb")
    for link in LINK.finditer(page.read_text())
}
"""Links from the paper's equations to the code: mark, module and name."""


def links(page: Path) -> list[str]:
    """The addresses of links and pictures, but those of the web."""
    found = []
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        for child in token.children or ():
            address = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if address and "://" not in address:
                found.append(address)
    return found


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    tokens = MarkdownIt().parse(page.read_text())
    made = {f"captioning-{command}" for command in COMMANDS if page.stem == "commands"}
    return made | {
        slugify(token.content)
        for heading, token in pairwise(tokens)
        if heading.type == "heading_open"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


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
    assert [link["mark"] for link in LINK.finditer(READING.read_text())] == ROWS


@pytest.mark.parametrize(("mark", "module", "name"), sorted(EQUATIONS))
def test_an_equation_stands_in_the_docstring(mark: str, module: str, name: str) -> None:
    docstring = docstrings(module, name)
    assert mark in docstring or mark.removeprefix("eq. ") in equations(docstring)
