"""File names for the pictures of many photos in one folder."""

import os
from collections.abc import Iterable
from pathlib import Path

from captioning.errors import InputError

LONGEST = 200
"""Bytes of a photo's name in its picture's name, which leaves room for a number."""


def picture_names(
    photos: Iterable[Path], folder: str | Path, suffix: str = ".png"
) -> dict[Path, Path]:
    """The path of each photo's picture in the folder.

    A picture is named after its photo; repeated names are numbered.

    Args:
        photos: the photos.
        folder: the folder of the pictures.
        suffix: of the pictures.

    Raises:
        InputError: a picture would replace one of the photos.
    """
    photos = dict.fromkeys(photos)
    originals = {os.path.realpath(photo): photo for photo in photos}
    names: dict[Path, Path] = {}
    taken: set[str] = set()
    for photo in photos:
        stem = photo.stem
        while len(os.fsencode(stem)) > LONGEST:
            stem = stem[:-1]
        name, number = f"{stem}{suffix}", 1
        while name.casefold() in taken:  # some file systems ignore case
            number += 1
            name = f"{stem}-{number}{suffix}"
        taken.add(name.casefold())
        picture = Path(folder) / name
        original = originals.get(os.path.realpath(picture))
        if original is not None:
            raise InputError(
                f"{folder}: the overlay of {photo} would replace the photo "
                f"{original}; choose another folder"
            )
        names[photo] = picture
    return names
