"""Names for the pictures of many photos in one folder."""

from collections.abc import Iterable
from pathlib import Path


def picture_names(photos: Iterable[Path]) -> dict[Path, str]:
    """A PNG file name for each photo, by its stem; equal stems are numbered from the second on."""
    names: dict[Path, str] = {}
    taken: set[str] = set()
    for photo in photos:
        if photo in names:
            continue
        name, number = f"{photo.stem}.png", 1
        while name.casefold() in taken:  # some file systems do not tell a.png from A.png
            number += 1
            name = f"{photo.stem}-{number}.png"
        taken.add(name.casefold())
        names[photo] = name
    return names
