"""An interactive page per photo: its captions, and the attention of every word.

The page is one self-contained file: it embeds the photo, the attention weights, a style sheet and a
script, and its content security policy forbids everything else. Text becomes text nodes, never
markup, whatever a vocabulary or a file name holds.

Other pages can show the same view: they embed `viewer.css` and `viewer.js` from `asset`, and call
`attentionView.mount(element, data)` with the result of `data`, any number of times.
"""

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from captioning.captioner.caption import Caption
from captioning.files import written_whole

LONG_SIDE = 1024
"""The most pixels of the longer side of the photo in the page."""

QUALITY = 85
"""The JPEG quality of the photo."""


def data(
    photo: Image.Image,
    captions: Sequence[Caption],
    title: str = "",
    long_side: int = LONG_SIDE,
    compares: bool = False,
) -> dict[str, Any]:
    """The view's data as plain JSON values.

    A word's weights are one byte per region, row by row from the top, as base64: 255 is the word's
    maximum, which is given as `peak`. A caption names the map that they are, `map`; `further` has
    the maps to compare, each with its name and grid, and weights and peak of each word.

    Args:
        photo: the upright photo, with the size that the captions name.
        captions: its captions; the first is shown first.
        title: a name of the photo.
        long_side: the most pixels of the longer side of the photo in the view.
        compares: show the first two maps side by side, without a choice of others.

    Raises:
        ValueError: there is no caption, or the photo's size is not the captions'.
    """
    if not captions:
        raise ValueError("no caption to show; give at least one")
    for caption in captions:
        if photo.size != tuple(caption.size):
            raise ValueError(
                f"the photo is {photo.size} pixels but the caption is of one of {caption.size}; "
                "pass the photo that was captioned, turned upright"
            )
    first = captions[0]
    return {
        "title": title,
        "photo": _jpeg(photo, long_side),
        "size": list(first.size),
        "crop": list(first.crop),
        "captions": [_caption(caption) for caption in captions],
        "compares": compares,
    }


def html(
    photo: Image.Image, captions: Sequence[Caption], title: str = "", long_side: int = LONG_SIDE
) -> str:
    """A whole HTML document of the view, all in ASCII; see `data`.

    Raises:
        ValueError: there is no caption, or the photo's size is not the captions'.
    """
    content = data(photo, captions, title, long_side)
    style, script = asset("viewer.css"), asset("viewer.js")
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {source_hash(style)}; script-src {source_hash(script)}"
    )
    return Template(asset("viewer.html")).substitute(
        policy=policy,
        title=html_text(title or captions[0].text),
        caption=html_text(captions[0].text),
        data=script_json(content),
        style=style,
        script=script,
    )


def save(
    photo: Image.Image, captions: Sequence[Caption], path: str | Path, title: str = ""
) -> None:
    """Write the page of `html` to a file, atomically.

    Raises:
        InputError: the folder cannot be written to.
        ValueError: there is no caption, or the photo's size is not the captions'.
    """
    content = html(photo, captions, title)
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))


@cache
def asset(name: str) -> str:
    """The text of a part of the view: `viewer.html`, `viewer.css` or `viewer.js`."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")


def _caption(caption: Caption) -> dict[str, Any]:
    entry = caption.as_json()
    shown = _map(caption.map_name, caption.weights)
    for word, weights in zip(entry["words"], shown.pop("words"), strict=True):
        word |= weights
    further = [_map(name, maps) for name, maps in caption.further_maps.items()]
    return entry | shown | ({"further": further} if further else {})


def _map(name: str, maps: Float[Tensor, "T rows columns"]) -> dict[str, Any]:
    """A map of every word, with its name and its grid."""
    words = [{"peak": weights.max().item(), "weights": _bytes(weights)} for weights in maps]
    return {"map": name, "rows": maps.shape[1], "columns": maps.shape[2], "words": words}


def _bytes(weights: Float[Tensor, "rows columns"]) -> str:
    """Weights as shares of their maximum, one byte each, in base64."""
    shares = weights / weights.max().clamp(min=torch.finfo(torch.float32).tiny)
    whole = (255 * shares).round().cpu().numpy().astype(np.uint8)
    return base64.b64encode(whole.tobytes()).decode()


def _jpeg(photo: Image.Image, long_side: int) -> str:
    """The photo as a JPEG data URI, made smaller if need be, without metadata."""
    small = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = min(1.0, long_side / max(photo.size))
    size = (max(1, round(scale * photo.width)), max(1, round(scale * photo.height)))
    # Not `thumbnail`, which would need a copy of the whole photo.
    small = small.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    small.info.clear()  # comments and XMP, such as where it was taken, would be written too
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def script_json(value: Any) -> str:
    """JSON in ASCII that cannot close its HTML element."""
    escapes = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
    return json.dumps(value, separators=(",", ":")).translate(escapes)


def html_text(text: str) -> str:
    """Text within an HTML document, in ASCII, even if a file name is not Unicode."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()


def source_hash(content: str) -> str:
    """The content security policy's source for an inline style or script."""
    digest = hashlib.sha256(content.encode("ascii")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
