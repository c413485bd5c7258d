"""An interactive page per photo with its captions and a map of every word, and a page of links.

Other pages can show the same view: they embed `viewer.css` and `viewer.js`, and call
`attentionView.mount(element, data)` with the result of `data`, any number of times.
"""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from PIL import Image

from captioning.data.framing import jpeg
from captioning.data.images import DecodedPhoto
from captioning.data.tokens import FUNCTION_WORDS
from captioning.viewing.html_document import html_document

CaptionView = Mapping[str, Any]
"""What pages show of a caption, as `Caption.view` gives it: plain JSON values, with arrays of shape
(words, rows, columns) by name in ``maps``, and the ``crop`` and ``offset`` of their grid."""

LONG_SIDE = 1024  # pixels of the photo in the page
THUMBNAIL = 320  # pixels of the longer side of a photo in the page of links
ORDERS = {"highest": "surest first", "lowest": "least sure first"}  # of an index
FRAME_HEIGHT = 660  # pixels; a notebook does not fit a frame to its content

STYLE, SCRIPT = "viewing/viewer.css", "viewing/viewer.js"


def viewer_html(
    photo: Image.Image | DecodedPhoto,
    captions: Sequence[CaptionView],
    title: str = "",
    long_side: int = LONG_SIDE,
) -> str:
    """The page of a photo, as one document; see `data`."""
    return page_html(data(photo, captions, title, long_side))


def page_html(view: Mapping[str, Any], links: Mapping[str, str] | None = None) -> str:
    """The page of a photo, as one document.

    Args:
        view: the result of `data`.
        links: relative paths of other pages by the words of their links, the gallery's first; a
            link is dead where the name is empty. The first letter of the words is the link's key.
    """
    text, page = view["captions"][0]["caption"], "viewing/viewer.html"
    title, parts = view["title"] or text, {"caption": text, "view": view, "links": links or {}}
    return html_document(page, title, [STYLE], [SCRIPT], **parts)


def data(
    photo: Image.Image | DecodedPhoto,
    captions: Sequence[CaptionView],
    title: str = "",
    long_side: int = LONG_SIDE,
) -> dict[str, Any]:
    """The view's data as plain JSON values.

    A map has its name (``map``), its grid (``rows``, ``columns``) and for each word its largest
    weight (``peak``) and its ``weights`` as a share of that: one byte per region, row by row from
    the top, in base64.

    Args:
        photo: the photo of the captions, upright.
        captions: at least one, all with the same maps. Those whose content words differ are listed.
        title: a name of the photo.
        long_side: the most pixels of the longer side of the photo in the view.
    """
    image, size = photo if isinstance(photo, DecodedPhoto) else (photo, photo.size)
    return data_of(jpeg(image, long_side), size, captions, title)


def data_of(
    address: str, size: tuple[int, int], captions: Sequence[CaptionView], title: str = ""
) -> dict[str, Any]:
    """The result of `data` for a photo of this size, shown from this address."""
    return {
        "title": title,
        "photo": address,
        "size": list(size),
        "crop": list(captions[0]["crop"]),
        "offset": list(captions[0]["offset"]),
        "captions": [
            {key: value for key, value in caption.items() if key not in ("crop", "offset")}
            | {"maps": [_map_data(name, weights) for name, weights in caption["maps"].items()]}
            for caption in captions
        ],
        "functions": sorted(FUNCTION_WORDS),
    }


def iframe(photo: Image.Image | DecodedPhoto, captions: Sequence[CaptionView]) -> str:
    """The page in an <iframe> of its own, so that a notebook can show many."""
    content, title = escape(viewer_html(photo, captions)), escape(captions[0]["caption"])
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{content}" title="{title}"'
        f' style="width: 100%; height: {FRAME_HEIGHT}px; border: 0; border-radius: 8px"></iframe>'
    )


class PhotoCard(NamedTuple):
    """A photo of an index, with the file name of its page beside the index, if it has one.

    `thumbnail` is a data URI, `notes` stand below the caption, and `value` is a confidence or score
    to sort by.
    """

    name: str
    thumbnail: str
    sentence: str
    notes: Sequence[str] = ()
    value: float | None = None
    page: str = ""


def index_html(
    cards: Sequence[PhotoCard], title: str = "", orders: Mapping[str, str] = ORDERS
) -> str:
    """A page of photos with captions, which searches their words and sorts by value and name.

    Args:
        cards: the photos.
        title: by default the number of photos.
        orders: names of the orders of values; the page begins with the first one.
    """
    title = title or f"Captions of {len(cards):,} photo{'s' * (len(cards) != 1)}"
    return html_document(
        "viewing/index_page.html",
        title,
        [STYLE, "viewing/index_page.css"],
        ["viewing/index_page.js"],
        cards=cards,
        orders=orders,
        is_sorted=any(card.value is not None for card in cards),
    )


def _map_data(name: str, weights: Float[np.ndarray, "T rows columns"]) -> dict[str, Any]:
    peaks = weights.max(axis=(1, 2))
    shares = weights / peaks.clip(min=np.finfo(np.float32).tiny)[:, None, None]
    levels = (255 * shares).round().astype(np.uint8)
    words = [
        {"peak": peak, "weights": base64.b64encode(level.tobytes()).decode()}
        for peak, level in zip(peaks.tolist(), levels, strict=True)
    ]
    return {"map": name, "rows": weights.shape[1], "columns": weights.shape[2], "words": words}
