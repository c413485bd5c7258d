"""Photos with their captions as lines of JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.errors import PhotoError, printable_json
from captioning.search import Search


def json_line(photo: Path, caption: Caption | PhotoError, text: str | None = None) -> str:
    """Format a photo with its caption, or its error, as one line of JSON.

    `text` replaces the words of the caption.
    """
    if isinstance(caption, PhotoError):
        return printable_json({"image": str(photo), "error": str(caption)})
    entry = caption.as_json()
    return printable_json({"image": str(photo), **entry, "caption": text or entry["caption"]})


def captioned_lines(
    captioner: Captioner, search: Search, photos: Sequence[Path], batch_size: int
) -> Iterator[str]:
    """Yield the `json_line` of each photo, in order."""
    return map(json_line, photos, captioner.stream(photos, search, batch_size=batch_size))
