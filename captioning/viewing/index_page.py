"""The page that lists pages of `captioning.viewing.viewer`: photos, captions and confidence."""

from collections.abc import Sequence
from pathlib import Path
from string import Template
from urllib.parse import quote

from captioning.captioner.caption import Caption
from captioning.files import written_whole
from captioning.viewing.viewer import asset, html_text, policy

THUMBNAIL = 320
"""Pixels of the longer side of a photo in the list."""


def save(entries: Sequence[tuple[str, str, Caption]], path: str | Path) -> None:
    """Write the page, atomically.

    Args:
        entries: the file name of each page, which lies beside this one, its photo as a data URI,
            and its best caption.
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


def _item(page: str, thumbnail: str, caption: Caption) -> str:
    name = page.removesuffix(".html")
    sure = "" if caption.confidence is None else f" · {caption.confidence:.0%} sure"
    return (
        f'<li><a href="{quote(page, errors="surrogateescape")}">'
        f'<img src="{thumbnail}" alt="" loading="lazy">'
        f"<strong>{html_text(caption.sentence or 'No words.')}</strong>"
        f"<small>{html_text(name + sure)}</small></a></li>"
    )
