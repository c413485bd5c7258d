"""The options of `captioning caption`, in groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt

from captioning.commands.options import (
    MAY_BEGIN_WITH_DASH,
    CaptionColumn,
    MapNames,
    PhotoColumn,
    Share,
)

STDOUT = Path("-")


@Parameter(name="*")
@dataclass(frozen=True)
class LineOptions:
    """What the lines on standard output say of a photo."""

    json: Annotated[bool, Parameter(alias="--jsonl")] = False
    """Print one line of JSON per caption."""
    confidence: bool = False
    """Print the chance that a caption is good before its photo; JSON and pages always have it."""
    min_confidence: Share = 0.0
    """Print 'not sure' for captions below P."""


@Parameter(name="*", group="What captions say")
@dataclass(frozen=True)
class CaptionOptions:
    """How many captions a photo gets, and words that they must or must not have."""

    captions: PositiveInt | None = None
    """Write the best N captions of each photo, each in a line of its own; a beam search follows at
    least as many."""
    diverse: bool = False
    """Captions that differ: a beam search for each, penalised for words of earlier ones."""
    begin: str = ""
    """Begin each caption with these words."""
    avoid: tuple[str, ...] = ()
    """Never say this word or phrase; only whole words match, so dog allows dogs; repeatable."""
    must_say: tuple[str, ...] = ()
    """Say this word or phrase in each caption; repeatable."""


@Parameter(name="*", group="Texts")
@dataclass(frozen=True)
class TextOptions:
    """The captions as text."""

    sentence: bool = False
    """Write each caption with a capital and a full stop."""
    prefix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text before each caption."""
    suffix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text after each caption."""
    txt: bool = False
    """Write a file NAME.txt beside each photo NAME.jpg."""
    txt_dir: Path | None = None
    """Write these files to this folder instead, which mirrors the folders of the photos."""
    xmp: bool = False
    """Write captions and keywords to XMP files NAME.jpg.xmp, keeping what people wrote there."""
    skip_existing: bool = False
    """Leave out photos whose text file, or description in the XMP file, exists."""
    csv: Annotated[Path | None, MAY_BEGIN_WITH_DASH] = None
    """Write a table: file_name (relative to it), caption, confidence, keywords and their chances;
    - prints it instead of lines."""
    keywords: Share = 0.5
    """In XMP files, tables and pages, words of the caption whose chance to be named is at least P
    are keywords."""
    alt: Path | None = None
    """Caption the pictures of this web page that have no alt text, and write it with them to
    NAME.captioned.html; only files by relative path."""
    fill: Path | None = None
    """Caption the photos of this CSV table that have no caption, and write it with them to
    NAME.captioned.csv."""
    caption_column: CaptionColumn = None
    photo_column: PhotoColumn = None

    @property
    def fills_copy(self) -> bool:
        """Whether the photos are those of a page or table, of which a copy is filled."""
        return self.alt is not None or self.fill is not None


@Parameter(name="*", group=Group("Pictures", help="Where the model looked for every word."))
@dataclass(frozen=True)
class PictureOptions:
    """Folders of pictures, animations and pages of where the model looked."""

    overlay: Path | None = None
    """Write a picture per photo to this folder."""
    gif: Path | None = None
    """Write an animation per photo to this folder, one frame per word."""
    html: Path | None = None
    """Write a page per photo to this folder, to see word by word where the model looked, in any
    browser, and index.html with all of them."""
    maps: MapNames = ()

    @property
    def folders(self) -> dict[str, Path]:
        """The folders by the suffix of their files."""
        folders = {".png": self.overlay, ".gif": self.gif, ".html": self.html}
        return {suffix: folder for suffix, folder in folders.items() if folder is not None}

    def map_names(self, default_map: str) -> tuple[str, ...]:
        """Return the maps that the pictures show, by default the model's default map."""
        if not self.folders:
            return ()
        return self.maps or (default_map,)

    @property
    def photo_side(self) -> int | None:
        """The pixels that pictures need along the longer side of a photo; pages need the file."""
        if not self.folders or self.html is not None:
            return None
        from captioning.viewing.overlay import DRAWN_SIDE

        return DRAWN_SIDE


@Parameter(name="*", group=Group("Bulk captioning", help="More photos than a screen can show."))
@dataclass(frozen=True)
class BulkOptions:
    """Files of JSON lines, by this machine or a cluster."""

    out: Path | None = None
    """Write JSON lines to files in this folder; photos that are captioned there are skipped."""
    shard_size: PositiveInt = 1000
    """Photos per file."""
    ray: str | None = None
    """Caption on the machines of a Ray cluster: auto for the one that this machine belongs to,
    HOST:PORT, or local for all GPUs of this machine; needs the extra ray."""
