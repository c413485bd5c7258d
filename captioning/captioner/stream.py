"""Photos as the model sees them: read ahead by threads, with an error in place of each bad one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from captioning.data.preprocessing import Photo, Preprocessing, Readable, View, readable
from captioning.errors import InputError, PhotoError
from captioning.terminal import printable
from captioning.threads import read_ahead

Result = TypeVar("Result")


class Viewed(NamedTuple):
    """A photo of a stream.

    Attributes:
        number: its place in the stream, from 0.
        photo: as it was given; pixels and the bytes of a file have become an image.
        view: what the model sees of it.
    """

    number: int
    photo: Readable
    view: View


def viewed(
    photos: Iterable[Photo], preprocessing: Preprocessing, ahead: int
) -> Iterator[Viewed | PhotoError]:
    """What the model sees of each photo, in order, or why it cannot be read.

    Args:
        photos: taken by the calling thread, which also loads images of Pillow, since the same one
            may come twice.
        preprocessing: how a photo becomes an image.
        ahead: number of photos that are read ahead.
    """

    def loaded(number: int, photo: Photo) -> tuple[int, Readable | PhotoError]:
        try:
            return number, readable(photo, preprocessing.max_pixels)
        except InputError as error:
            return number, PhotoError(f"photo {number + 1}", str(error))

    def seen(given: tuple[int, Readable | PhotoError]) -> Viewed | PhotoError:
        number, photo = given
        if isinstance(photo, PhotoError):
            return photo
        try:
            view = photo if isinstance(photo, View) else preprocessing(photo)
        except InputError as error:
            name = photo if isinstance(photo, Path) else str(photo)
            return PhotoError(name, str(error).removeprefix(f"{printable(name)}: "))
        return Viewed(number, photo, view)

    return read_ahead(seen, (loaded(*each) for each in enumerate(photos)), ahead)


def raise_errors(results: Iterable[Result | PhotoError]) -> Iterator[Result]:
    """The results of a stream; raises the first PhotoError."""
    for result in results:
        if isinstance(result, PhotoError):
            raise result
        yield result
