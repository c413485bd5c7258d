"""Links of the pages that are read in the repository: their files and headings are there."""

from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors.index import slugify

from captioning.commands import COMMANDS

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


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
