"""Records of a data set, independent of its file format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MOST_CAPTIONS = 10_000
"""The most captions of one image. Data sets have 5 or 50; scoring a million would take hours."""


@dataclass(frozen=True)
class ImageObject:
    """One annotated object of an image.

    Attributes:
        name: the category's name, such as ``dog``.
        box: left, top, width and height in pixels of the original photo (COCO's order).
        mask: COCO's ``segmentation`` as read (polygons or run-length encoding), or None.
    """

    name: str
    box: tuple[float, float, float, float]
    mask: Any = None


class Phrase(NamedTuple):
    """Words of a caption that the data set links to objects.

    Attributes:
        name: name of the objects.
        start: index of the first word, as `captioning.data.tokens.tokenize` counts them.
        stop: index after the last word.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Record:
    """One image with its reference captions.

    Attributes:
        image: path of the photo.
        image_id: the id that the data set uses, and that results files refer to.
        captions: reference captions as written by people, not tokenized.
        objects: annotated objects; empty if the data set has none.
        phrases: for each caption, the phrases that name objects; empty if the data set does not
            link words to objects.
    """

    image: Path
    image_id: int | str
    captions: tuple[str, ...]
    objects: tuple[ImageObject, ...] = ()
    phrases: tuple[tuple[Phrase, ...], ...] = ()
