"""An interactive page per photo: its captions, and a map of every word.

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
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.data.images import read_image
from captioning.errors import InputError
from captioning.files import written_whole

Photo = str | Path | Image.Image
"""A photo file, or an image as `read_image` returns it."""

LONG_SIDE = 1024  # pixels of the photo in the page
QUALITY = 85  # of JPEG


def save(photo: Photo, captions: Sequence[Caption], path: str | Path, title: str = "") -> None:
    """Write the page of `html` to a file, atomically.

    Raises:
        InputError: as `data`, or the file cannot be written.
    """
    content = html(photo, captions, title)
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))


def html(
    photo: Photo, captions: Sequence[Caption], title: str = "", long_side: int = LONG_SIDE
) -> str:
    """A complete HTML document of the view, in ASCII; see `data`."""
    style, script = asset("viewer.css"), asset("viewer.js")
    return Template(asset("viewer.html")).substitute(
        policy=policy([style], [script]),
        title=html_text(title or captions[0].text),
        caption=html_text(captions[0].text),
        data=script_json(data(photo, captions, title, long_side)),
        style=style,
        script=script,
    )


def data(
    photo: Photo,
    captions: Sequence[Caption],
    title: str = "",
    long_side: int = LONG_SIDE,
    compares: bool = False,
) -> dict[str, Any]:
    """The view's data as plain JSON values.

    Each caption is `Caption.as_json` with its `shown_maps` in ``maps``. A map has its name
    (``map``), its grid (``rows``, ``columns``) and for each word its largest weight (``peak``) and
    its ``weights`` as a share of that: one byte per region, row by row from the top, in base64.

    Args:
        photo: the photo of the captions, or its path.
        captions: at least one; the first is shown first. All have the same maps.
        title: a name of the photo.
        long_side: the most pixels of the longer side of the photo in the view.
        compares: show the first two maps side by side, without a choice of others.

    Raises:
        InputError: the photo cannot be read, or is not the captions'.
    """
    first = captions[0]
    return {
        "title": title,
        "photo": jpeg(upright(photo, first), long_side),
        "size": list(first.size),
        "crop": list(first.crop),
        "captions": [
            caption.as_json() | {"maps": [_map(caption, name) for name in caption.shown_maps]}
            for caption in captions
        ],
        "compares": compares,
    }


def upright(photo: Photo, caption: Caption) -> Image.Image:
    """The photo of a caption as an image.

    Raises:
        InputError: the photo cannot be read, or has another size than the captioned one.
    """
    if not isinstance(photo, Image.Image):
        photo = read_image(photo, math.prod(caption.size))
    if photo.size != tuple(caption.size):
        raise InputError(
            f"the photo has {photo.width} x {photo.height} pixels, but the captioned one "
            f"{caption.size[0]} x {caption.size[1]}; give the photo that was captioned, upright"
        )
    return photo


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


def _map(caption: Caption, name: str) -> dict[str, Any]:
    weights = caption.map(name)
    peaks = weights.amax((1, 2))
    shares = weights / peaks.clamp(min=torch.finfo(torch.float32).tiny)[:, None, None]
    levels = (255 * shares).round().cpu().numpy().astype(np.uint8)
    words = [
        {"peak": peak, "weights": base64.b64encode(level.tobytes()).decode()}
        for peak, level in zip(peaks.tolist(), levels, strict=True)
    ]
    return {"map": name, "rows": weights.shape[1], "columns": weights.shape[2], "words": words}


def asset(name: str) -> str:
    """The text of a part of the view: `viewer.html`, `viewer.css` or `viewer.js`."""
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
