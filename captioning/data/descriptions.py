"""Descriptions and keywords of photos: in the photo, as XMP, IPTC or EXIF, and in XMP files
beside it."""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from PIL import ExifTags, IptcImagePlugin

from captioning.data.images import opened_image
from captioning.data.xmp import Xmp
from captioning.errors import InputError

Source = Literal["xmp", "iptc", "exif"]

IPTC_KEYWORDS, IPTC_CAPTION = (2, 25), (2, 120)


@dataclass(frozen=True)
class Descriptions:
    """The descriptions of a photo. Each source is read when it is needed.

    Raises:
        InputError: a source cannot be read.
    """

    photo: Path

    @cached_property
    def xmp(self) -> dict[Path, Xmp]:
        """By file: that of NAME.jpg.xmp and NAME.xmp, where they exist, and of the photo."""
        sidecars = dict.fromkeys([sidecar_of(self.photo), self.photo.with_suffix(".xmp")])
        xmp = {path: Xmp.read(path) for path in sidecars if os.path.lexists(path)}
        with opened_image(self.photo) as image:
            if image.format == "PNG":
                image.load()  # texts may come after the pixels
            content = image.info.get("xmp", b"")
        return xmp | {self.photo: Xmp(content, self.photo)}

    @cached_property
    def iptc(self) -> str:
        """The photo's caption; empty if there is none."""
        return next(iter(self._iptc_values(IPTC_CAPTION)), "")

    @cached_property
    def keywords(self) -> list[str]:
        """People's keywords: those of sidecars, else of the photo's XMP, else of its IPTC."""
        lists = [xmp.keywords for xmp in self.xmp.values()]
        return next(filter(None, lists), []) or self._iptc_values(IPTC_KEYWORDS)

    @cached_property
    def exif(self) -> str:
        """The photo's description, which some cameras fill; empty if there is none."""
        with opened_image(self.photo) as image:
            text = str(image.getexif().get(ExifTags.Base.ImageDescription, ""))
        return _decoded(text.encode("latin-1", "replace"))  # as which Pillow reads it

    def _iptc_values(self, field: tuple[int, int]) -> list[str]:
        """The photo's values of a field of IPTC, in order."""
        with opened_image(self.photo) as image:
            values = (IptcImagePlugin.getiptcinfo(image) or {}).get(field, [])
        return [_decoded(value) for value in (values if isinstance(values, list) else [values])]

    def texts(self, source: Source) -> list[str]:
        """The descriptions of a source that are not empty, those of sidecars first."""
        if source == "xmp":
            texts = [xmp.description for xmp in self.xmp.values()]
        else:
            texts = [self.iptc if source == "iptc" else self.exif]
        return list(filter(None, texts))

    def is_ours(self, text: str) -> bool:
        """Whether a model wrote a description, as far as XMP can be read that says so."""
        with suppress(InputError):
            return any(xmp.is_ours(text) for xmp in self.xmp.values())
        return False

    def of_people(self, *sources: Source) -> str:
        """The first description that no model wrote; empty if there is none."""
        for source in sources:
            for text in self.texts(source):
                if not self.is_ours(text):
                    return text
        return ""


def sidecar_of(photo: Path) -> Path:
    """The XMP file of a photo, named as by darktable, digiKam and Immich: NAME.jpg.xmp."""
    return photo.with_name(f"{photo.name}.xmp")


def _decoded(text: bytes) -> str:
    """Decode UTF-8, which most programs write without saying so, else Western of Windows."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        decoded = text.decode("cp1252", "replace")
    return decoded.strip("\0 \t\r\n")
