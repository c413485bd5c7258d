"""Records of a data set, independent of its file format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ImageObject:
    """One annotated object of an image."""

    name: str  # of its category, such as dog
    box: tuple[float, float, float, float]  # left, top, width and height in pixels of the photo
    mask: Any = None  # COCO's segmentation as read: polygons or run-length encoding


class Phrase(NamedTuple):
    """Words of a caption, as `tokenize` counts them, that the data set links to objects."""

    name: str  # of the objects
    start: int
    stop: int  # after the last word


@dataclass(frozen=True)
class Record:
    """One image with its reference captions."""

    image: Path
    image_id: int | str  # the data set's, which results files refer to
    captions: tuple[str, ...]
    objects: tuple[ImageObject, ...] = ()  # empty if the data set has none
    phrases: tuple[tuple[Phrase, ...], ...] = ()  # of each caption; empty if the data set has none
    is_rehearsal: bool = False  # whether it is trained on only so that it is not forgotten
