"""An interactive page per photo with its captions and a map of every word, and a page of links.

A page is one self-contained file: it embeds the photo, the maps, a style sheet and a script, and
its content security policy forbids everything else. Text becomes text nodes, never markup, whatever
a vocabulary or a file name contains.

Other pages can show the same view: they embed `viewer.css` and `viewer.js` from `asset`, and call
`attentionView.mount(element, data)` with the result of `data`, any number of times.
"""

import base64
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Float
from PIL import Image

from captioning.files import written_whole

CaptionView = Mapping[str, Any]
"""What pages show of a caption, as `Caption.view` gives it: plain JSON values, with arrays of shape
(words, rows, columns) by name in ``maps``, and the model's ``crop`` of the photo."""

LONG_SIDE = 1024  # pixels of the photo in the page
QUALITY = 85  # of JPEG
THUMBNAIL = 320  # pixels of the longer side of a photo in the page of links
FRAME_HEIGHT = 660  # pixels; a notebook does not fit a frame to its content


def save(
    photo: Image.Image, captions: Sequence[CaptionView], path: str | Path, title: str = ""
) -> None:
    """Write the page of `html` to a file, atomically.

    Raises:
        InputError: the file cannot be written.
    """
    content = html(photo, captions, title)
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))


def html(
    photo: Image.Image,
    captions: Sequence[CaptionView],
    title: str = "",
    long_side: int = LONG_SIDE,
) -> str:
    """A complete HTML document of the view, in ASCII; see `data`."""
    style, script = asset("viewer.css"), asset("viewer.js")
    text = captions[0]["caption"]
    return Template(asset("viewer.html")).substitute(
        policy=policy([style], [script]),
        title=html_text(title or text),
        caption=html_text(text),
        data=script_json(data(photo, captions, title, long_side)),
        style=style,
        script=script,
    )


def data(
    photo: Image.Image,
    captions: Sequence[CaptionView],
    title: str = "",
    long_side: int = LONG_SIDE,
    compares: bool = False,
) -> dict[str, Any]:
    """The view's data as plain JSON values.

    A map has its name (``map``), its grid (``rows``, ``columns``) and for each word its largest
    weight (``peak``) and its ``weights`` as a share of that: one byte per region, row by row from
    the top, in base64.

    Args:
        photo: the photo of the captions, upright.
        captions: at least one; the first is shown first. All have the same maps.
        title: a name of the photo.
        long_side: the most pixels of the longer side of the photo in the view.
        compares: show the first two maps side by side, without a choice of others.
    """
    return {
        "title": title,
        "photo": jpeg(photo, long_side),
        "size": list(photo.size),
        "crop": list(captions[0]["crop"]),
        "captions": [
            {key: value for key, value in caption.items() if key != "crop"}
            | {"maps": [_map(name, weights) for name, weights in caption["maps"].items()]}
            for caption in captions
        ],
        "compares": compares,
    }


def frame(photo: Image.Image, captions: Sequence[CaptionView]) -> str:
    """The page in an <iframe> of its own, so that a notebook can show many."""
    content, title = escape(html(photo, captions)), escape(captions[0]["caption"])
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{content}" title="{title}"'
        f' style="width: 100%; height: {FRAME_HEIGHT}px; border: 0; border-radius: 8px"></iframe>'
    )


def save_index(entries: Sequence[tuple[str, str, str, float | None]], path: str | Path) -> None:
    """Write a page that lists other pages, atomically.

    Args:
        entries: of each page its file name, which lies beside this one, its photo as a data URI,
            and the sentence and the confidence of its best caption.
        path: of this page.

    Raises:
        InputError: the file cannot be written.
    """
    styles = [asset("viewer.css"), asset("index_page.css")]
    content = Template(asset("index_page.html")).substitute(
        policy=policy(styles, []),
        count=f"{len(entries):,} photo{'s' * (len(entries) != 1)}",
        styles="".join(f"<style>{style}</style>" for style in styles),
        items="\n".join(_item(*entry) for entry in entries),
    )
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))


def _item(page: str, thumbnail: str, sentence: str, confidence: float | None) -> str:
    sure = "" if confidence is None else f" · {confidence:.0%} sure"
    return (
        f'<li><a href="{quote(page, errors="surrogateescape")}">'
        f'<img src="{thumbnail}" alt="" loading="lazy">'
        f"<strong>{html_text(sentence or 'No words.')}</strong>"
        f"<small>{html_text(page.removesuffix('.html') + sure)}</small></a></li>"
    )


def jpeg(photo: Image.Image, long_side: int) -> str:
    """The photo as a JPEG data URI without metadata, scaled down to `long_side` pixels."""
    small = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = min(1.0, long_side / max(photo.size))
    size = (max(1, round(scale * photo.width)), max(1, round(scale * photo.height)))
    # Not `thumbnail`, which would need a copy of the whole photo.
    small = small.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    small.info.clear()  # comments and XMP, such as where it was taken, would be written too
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _map(name: str, weights: Float[np.ndarray, "T rows columns"]) -> dict[str, Any]:
    peaks = weights.max(axis=(1, 2))
    shares = weights / peaks.clip(min=np.finfo(np.float32).tiny)[:, None, None]
    levels = (255 * shares).round().astype(np.uint8)
    words = [
        {"peak": peak, "weights": base64.b64encode(level.tobytes()).decode()}
        for peak, level in zip(peaks.tolist(), levels, strict=True)
    ]
    return {"map": name, "rows": weights.shape[1], "columns": weights.shape[2], "words": words}


def asset(name: str) -> str:
    """The text of a part of the pages, such as `viewer.css` or `viewer.js`."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")


def policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """The content security policy of a page: these inline styles and scripts, nothing else."""
    kinds = []
    for kind, contents in (("style", styles), ("script", scripts)):
        digests = [hashlib.sha256(content.encode("ascii")).digest() for content in contents]
        sources = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        kinds.append(f"{kind}-src {' '.join(sources)}")
    return "; ".join(
        ["default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'", *kinds]
    )


def script_json(value: Any) -> str:
    """JSON in ASCII that cannot close the HTML element it stands in."""
    escapes = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
    return json.dumps(value, separators=(",", ":")).translate(escapes)


def html_text(text: str) -> str:
    """Text for an HTML document, in ASCII; also of file names that are not valid Unicode."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()
