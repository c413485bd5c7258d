"""Records of a data set, independent of its file format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


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
    """Words of a caption, as `tokenize` counts them, that the data set links to objects."""

    name: str  # of the objects
    start: int
    stop: int  # after the last word


@dataclass(frozen=True)
class Record:
    """One image with its reference captions.

    Attributes:
        image: path of the photo.
        image_id: the data set's id, which results files refer to.
        captions: reference captions as written by people.
        objects: annotated objects; empty if the data set has none.
        phrases: for each caption, the phrases that name objects; empty if the data set has none.
    """

    image: Path
    image_id: int | str
    captions: tuple[str, ...]
    objects: tuple[ImageObject, ...] = ()
    phrases: tuple[tuple[Phrase, ...], ...] = ()
