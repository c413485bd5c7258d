"""Photos are decoded together only as far as their pixels fit into memory together."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from captioning.data.images import Upload
from captioning.serving.memory import give_back

LARGE = 5_000_000
"""Pixels from which on the memory of a photo is given back at once.

Otherwise each thread would keep what its largest photo took, for its next one.
"""


class PixelBudget:
    """Lets threads decode photos of so many pixels at a time.

    Args:
        pixels: of all photos together; a larger one is decoded alone.

    Attributes:
        free: pixels that others have room for.
    """

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self.free = pixels
        self._turn = threading.Lock()
        self._change = threading.Condition()

    @contextmanager
    def room_for(self, photo: Upload) -> Iterator[None]:
        """Wait until a photo fits; it does as long as the block lasts."""
        pixels = min(_pixels(photo), self._pixels)
        with self._turn, self._change:  # small photos do not overtake a large one for ever
            self._change.wait_for(lambda: self.free >= pixels)
            self.free -= pixels
        try:
            yield
        finally:
            if pixels >= LARGE:
                give_back()
            with self._change:
                self.free += pixels
                self._change.notify()


def _pixels(photo: Upload) -> int:
    """How many the header tells of; none where nothing will be decoded."""
    try:
        with Image.open(photo.open("rb"), formats=photo.formats) as image:
            width, height = image.size
    except Exception:  # reading the photo will tell what is wrong with it
        return 0
    return width * height if width * height <= photo.max_pixels else 0
