"""The photos of a bulk captioning as a stream, never all in memory."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from captioning.data.photos import find_photos
from captioning.errors import UsageError


class PhotoStream:
    """The photos of paths and a list, in a fixed order.

    Every iteration starts from the beginning, so each process can iterate by itself.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line.

    Raises:
        UsageError: the list can be read only once, such as a pipe.
    """

    def __init__(self, paths: Sequence[str | Path], listed: str | Path | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.listed = None if listed is None else Path(listed)
        if self.listed is not None and self.listed.exists() and not self.listed.is_file():
            raise UsageError(
                f"{self.listed}: cannot be read more than once; write the list to a file"
            )

    def __iter__(self) -> Iterator[Path]:
        """See `captioning.data.photos.find_photos`."""
        return find_photos(self.paths, self.listed)


class Count:
    """Counts photos, and computes a digest to compare two streams by."""

    def __init__(self) -> None:
        self.photos = 0
        self._digest = hashlib.sha256()

    def passing(self, photos: Iterable[Path]) -> Iterator[Path]:
        """The same photos, counted as they pass."""
        for photo in photos:
            self.photos += 1
            self._digest.update(os.fsencode(photo) + b"\0")
            yield photo

    @property
    def digest(self) -> str:
        """A digest of the paths and their order."""
        return self._digest.hexdigest()
