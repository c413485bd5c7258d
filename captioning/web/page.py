"""The page where users drop photos. Its `Source` says where their captions come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioning.data.images import UPLOAD_KINDS
from captioning.search import BeamSearch, Sampling, Search
from captioning.viewing import viewer
from captioning.viewing.html_document import content_policy, html_document

MAX_CAPTIONS = 10
"""The most captions of a photo."""

TEMPERATURE = 0.7
"""The default temperature of sampling: at 1, rare words are often wrong."""

STYLES = (viewer.STYLE, "web/page.css")
ALLOWED = {"img-src": "'self' blob:", "connect-src": "'self'"}
"""The sources that the page may load from: its own address, and photos of the visitor."""


@dataclass(frozen=True)
class Source:
    """The source of a page's captions.

    Attributes:
        script: the script that defines ``captionSource``.
        formats: the formats of photos that it takes.
        promise: a sentence for visitors, or empty.
        footer: in HTML, a link.
        samples: whether words may be sampled.
        allowed: what the page may load; see `content_policy`.
    """

    script: str
    formats: str
    promise: str
    footer: str
    samples: bool
    allowed: Mapping[str, str] = field(default_factory=lambda: ALLOWED)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The scripts in the page, by their names for `asset`."""
        return (viewer.SCRIPT, "web/hiding.js", self.script, "web/page.js")

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        return content_policy(STYLES, self.scripts, self.allowed)


SERVER = Source(
    "web/server.js",
    UPLOAD_KINDS,
    "",
    '<a href="docs">API</a>',
    samples=True,
)
"""The server's API."""

LOCAL = Source(
    "web/local.js",
    "JPEG, PNG, WebP, GIF, AVIF or BMP",
    " Your photos stay on this device: the model runs in the page.",
    '<a href="licences.txt">Licences</a>',
    samples=False,
    # The program and its WebAssembly lie beside the page.
    allowed=ALLOWED | {"script-src": "'self' 'wasm-unsafe-eval'"},
)
"""ONNX graphs that run in the browser."""

PHOTOS = {
    f"{name}.jpg": Path(__file__).with_name("photos") / f"{name}.jpg"
    for name in (
        "cat",
        "dogs",
        "giraffe",
        "fig",
        "temple",
        "coffee",
        "flower",
        "rocket",
        "astronaut",
    )
}
"""Free photos by their file names; README.md beside them says whose they are."""

PHOTO_BUTTONS = "".join(
    f'<button type="button" data-photo="{name}"><img src="photos/{name}" '
    f'alt="{name.partition(".")[0]}"></button>'
    for name in PHOTOS
)
"""In HTML, a button for each of the free photos."""


def page(
    model: str,
    search: Search,
    largest: int,
    maps: Sequence[str],
    source: Source = SERVER,
    examples: str = "",
    tabs: str = "",
    reviews: bool = False,
) -> str:
    """Return the page as HTML, with its scripts and styles in it.

    Args:
        model: the name of the model.
        search: the search of the initial settings.
        largest: the most bytes of a photo.
        maps: the maps of a word to choose from, the selected one first; with fewer than two there
            is no choice.
        source: where captions come from.
        examples: in HTML, pictures to click, of which the first is captioned at once.
        tabs: in HTML, links to other pages.
        reviews: whether the source reviews the visitor's words, or else says how probable they are.
    """
    return html_document(
        "web/page.html",
        "captioning",
        STYLES,
        source.scripts,
        source.allowed,
        model=model,
        source=source,
        tabs=tabs,
        examples=examples,
        largest=largest,
        samples=isinstance(search, Sampling),
        beam=min(search.width if isinstance(search, BeamSearch) else 1, MAX_CAPTIONS),
        temperature=search.temperature if isinstance(search, Sampling) else TEMPERATURE,
        most=MAX_CAPTIONS,
        maps=maps,
        reviews=reviews,
    )
