"""The page where users drop photos. Its `Source` says where their captions come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from captioning.search import BeamSearch, Sampling, Search
from captioning.viewing import viewer

MOST_CAPTIONS = 10  # of a photo

TEMPERATURE = 0.7
"""The default for sampling; below 1, since at 1 rare words are often wrong."""


@dataclass(frozen=True)
class Source:
    """Where the page has its captions from.

    Attributes:
        script: defines ``captionSource``.
        formats: of photos that it takes.
        promise: a sentence for visitors, or empty.
        without_scripts: in HTML, for browsers that run none.
        footer: in HTML, a link.
        samples: whether words may be drawn at random.
    """

    script: str
    formats: str
    promise: str
    without_scripts: str
    footer: str
    samples: bool


SERVER = Source(
    "server.js",
    "JPEG, PNG, WebP, GIF, TIFF, BMP or PPM",
    "",
    'This page needs JavaScript; the <a href="docs">API</a> does without.',
    '<a href="docs">API</a>',
    samples=True,
)
"""The server's API."""

LOCAL = Source(
    "local.js",
    "JPEG, PNG, WebP, GIF, AVIF or BMP",
    " Your photos stay on this device: the model runs in the page.",
    "This page needs JavaScript, which runs the model.",
    '<a href="licences.txt">Licences</a>',
    samples=False,
)
"""ONNX graphs that run in the browser."""

PHOTOS = {
    f"{name}.jpg": Path(__file__).with_name("photos") / f"{name}.jpg"
    for name in ("cat", "temple", "coffee", "flower", "rocket", "astronaut")
}
"""Free photos by their file names; README.md beside them says whose they are."""

PHOTO_BUTTONS = "".join(
    f'<button type="button" data-photo="{name}"><img src="photos/{name}" '
    f'alt="{name.partition(".")[0]}"></button>'
    for name in PHOTOS
)
"""In HTML, what captions each of the free photos."""


def page(
    model: str,
    search: Search,
    largest: int,
    maps: Sequence[str],
    source: Source = SERVER,
    examples: str = "",
    tabs: str = "",
    head: str = "",
) -> str:
    """The page as HTML, with its scripts and styles in it.

    Args:
        model: its name.
        search: gives the initial settings.
        largest: the most bytes of a photo.
        maps: the maps of a word to choose from, the selected one first; with fewer than two there
            is no choice.
        source: where captions come from.
        examples: in HTML, pictures to click, of which the first is captioned at once.
        tabs: in HTML, links to other pages.
        head: in HTML, what goes before the styles.
    """
    is_sampling = isinstance(search, Sampling)
    return Template(asset("page.html")).substitute(
        head=head,
        model=escape(model),
        tabs=tabs,
        examples=examples,
        largest=largest,
        megabytes=f"{largest / 1e6:g}",
        formats=source.formats,
        promise=source.promise,
        without_scripts=source.without_scripts,
        footer=source.footer,
        several_kinds="" if source.samples else "hidden",
        by_sampling="checked" if is_sampling else "",
        by_beam="" if is_sampling else "checked",
        beam=min(search.width if isinstance(search, BeamSearch) else 1, MOST_CAPTIONS),
        temperature=f"{search.temperature if isinstance(search, Sampling) else TEMPERATURE:g}",
        most=MOST_CAPTIONS,
        several_maps="" if len(maps) > 1 else "hidden",
        maps="".join(f'<option value="{name}">{name}</option>' for name in maps),
        styles=_elements("style", _styles()),
        scripts=_elements("script", _scripts(source)),
    )


def policy(source: Source) -> str:
    """The content security policy of the page: what is in it, and its own address."""
    found = viewer.policy(_styles(), _scripts(source))
    found = found.replace("img-src data:", "img-src 'self' data: blob:")
    return f"{found}; connect-src 'self'"


def _elements(tag: str, contents: Sequence[str]) -> str:
    return "\n".join(f"<{tag}>{content}</{tag}>" for content in contents)


def _styles() -> list[str]:
    return [viewer.asset("viewer.css"), asset("page.css")]


def _scripts(source: Source) -> list[str]:
    return [viewer.asset("viewer.js"), *map(asset, ("hiding.js", source.script, "page.js"))]


def asset(name: str) -> str:
    """The text of a part of the page."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")
