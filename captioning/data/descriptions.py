"""Descriptions of photos: in the photo, as XMP, IPTC or EXIF, and in XMP files beside it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import ExifTags, Image, ImageFile, IptcImagePlugin

from captioning.data.images import opened_image
from captioning.data.xmp import Xmp

Source = Literal["xmp", "iptc", "exif"]

IPTC_CAPTION = (2, 120)


@dataclass(frozen=True)
class Descriptions:
    """The descriptions of a photo.

    Attributes:
        xmp: by file: of NAME.jpg.xmp and NAME.xmp, where they exist, and of the photo.
        iptc: the photo's caption; empty if there is none.
        exif: the photo's description, which some cameras fill.
    """

    xmp: Mapping[Path, Xmp]
    iptc: str
    exif: str

    @classmethod
    def read(cls, photo: Path) -> "Descriptions":
        """Read the descriptions of a photo.

        Raises:
            InputError: one of the files cannot be read.
        """
        with opened_image(photo) as image:
            if image.format == "PNG":
                image.load()  # texts may come after the pixels
            content = image.info.get("xmp", b"")
            iptc, exif = _iptc_caption(image), _exif_description(image)
        sidecars = dict.fromkeys([sidecar_of(photo), photo.with_suffix(".xmp")])
        xmp = {path: Xmp.read(path) for path in sidecars if os.path.lexists(path)}
        return cls(xmp | {photo: Xmp(content, photo)}, iptc, exif)

    def texts(self, source: Source) -> list[str]:
        """The descriptions of a source that are not empty, those of sidecars first."""
        texts = [xmp.description for xmp in self.xmp.values()]
        if source != "xmp":
            texts = [self.iptc if source == "iptc" else self.exif]
        return list(filter(None, texts))

    def is_ours(self, text: str) -> bool:
        """Whether a model wrote a description."""
        return any(xmp.is_ours(text) for xmp in self.xmp.values())

    def of_people(self, *sources: Source) -> str:
        """The first description that no model wrote; empty if there is none."""
        texts = [text for source in sources for text in self.texts(source)]
        return next((text for text in texts if not self.is_ours(text)), "")


def sidecar_of(photo: Path) -> Path:
    """The XMP file of a photo, named as by darktable, digiKam and Immich: NAME.jpg.xmp."""
    return photo.with_name(f"{photo.name}.xmp")


def _iptc_caption(image: ImageFile.ImageFile) -> str:
    captions = (IptcImagePlugin.getiptcinfo(image) or {}).get(IPTC_CAPTION, b"")
    return _decoded(captions[0] if isinstance(captions, list) else captions)


def _exif_description(image: Image.Image) -> str:
    text = str(image.getexif().get(ExifTags.Base.ImageDescription, ""))
    return _decoded(text.encode("latin-1", "replace"))  # as which Pillow reads it


def _decoded(text: bytes) -> str:
    """Decode UTF-8, which most programs write without saying so, else Western of Windows."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        decoded = text.decode("cp1252", "replace")
    return decoded.strip("\0 \t\r\n")
