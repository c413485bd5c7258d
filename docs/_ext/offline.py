"""Pages must be whole without a network: what a browser would fetch from elsewhere is a warning."""

import re
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Attributes by whose address a browser loads something by itself."""

ELSEWHERE = re.compile(r"\s*(https?:)?//")
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\s\"')]+)")

logger = logging.getLogger(__name__)


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(FETCHED.get(tag, "")) or ""
        if ELSEWHERE.match(address):
            self.found.append(address)


def fetched_from_elsewhere(text: str, is_style: bool = False) -> list[str]:
    """The addresses that a browser would ask for what a page or a style sheet needs.

    Links, which a reader follows or not, are none of them.

    Args:
        text: HTML or CSS.
        is_style: whether it is CSS.
    """
    if is_style:
        return IN_STYLES.findall(text)
    parser = _Addresses()
    parser.feed(text)
    return parser.found


def check(app: Sphinx, error: Exception | None) -> None:
    """Look through all that was written."""
    if error is not None or app.builder.name != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            for address in fetched_from_elsewhere(text, path.suffix == ".css"):
                logger.warning("%s asks for %s; pages need no network", path.name, address)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the check."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True}
