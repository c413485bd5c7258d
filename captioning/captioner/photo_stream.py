"""Photos of a stream, as the model sees them, one by one or in batches."""

import math
from collections.abc import Iterable, Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.framing import scaled_down
from captioning.data.images import DecodedPhoto, Upload
from captioning.data.preprocessing import (
    Photo,
    PhotoSource,
    Preprocessing,
    View,
    is_one_photo,
)
from captioning.errors import InputError, PhotoError, format_value, printable
from captioning.files import MAX_PATH_LENGTH
from captioning.threads import MIN_BATCH, batched, read_ahead

BATCHES_AHEAD = 2
"""Batches whose photos are read ahead."""


class StreamedPhoto(NamedTuple):
    """A photo of a stream.

    Attributes:
        number: its place in the stream, from 0.
        photo: the photo as it was given, with pixels as an image and bytes as an upload; or a
            decoded photo, scaled down to draw on.
        view: what the model sees of it.
    """

    number: int
    photo: PhotoSource | DecodedPhoto
    view: View


def read_streamed_photo(
    numbered_photo: tuple[int, Photo],
    preprocessing: Preprocessing,
    photo_side: int | None = None,
) -> StreamedPhoto | PhotoError:
    """Read a photo, with its place in a stream, or return why it cannot be read.

    With `photo_side`, `StreamedPhoto.photo` is the decoded photo, scaled down to have at most so
    many pixels on its longer side.
    """
    number, photo = numbered_photo
    is_named = isinstance(photo, str | Path | Upload) and len(str(photo)) <= MAX_PATH_LENGTH
    name = photo if is_named else f"photo {number + 1}"
    try:
        source = preprocessing.photo_source(photo, str(name))
        if isinstance(source, View):
            return StreamedPhoto(number, source, source)
        decoded_photo = preprocessing.decode(source, photo_side or 0)
        view = preprocessing(decoded_photo)
    except InputError as error:
        path = name if isinstance(name, Path) else str(name)
        return PhotoError(path, str(error).removeprefix(f"{printable(name)}: "))
    if photo_side is not None:
        return StreamedPhoto(number, scaled_down(decoded_photo, photo_side), view)
    return StreamedPhoto(number, source, view)


def photo_batches(
    photos: Photo | Iterable[Photo],
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    threads: int | None = None,
    photo_side: int | None = None,
) -> Iterator[list[StreamedPhoto | PhotoError]]:
    """Read photos in batches; threads read those of the next batches.

    Args:
        photos: a photo, or any iterable of photos.
        preprocessing: how a photo becomes an image.
        batch_size: the most photos per batch.
        threads: number of threads that work on the batches at once; None if batches are worked on
            in turn.
        photo_side: as for `read_streamed_photo`.

    Raises:
        InputError: `photos` are neither a photo nor several.
    """
    sequence: Any = [photos] if is_one_photo(photos) else photos
    if not isinstance(sequence, Iterable) or hasattr(sequence, "columns"):
        raise InputError(
            f"{format_value(photos)}: not a photo; give a path, an image, bytes or pixels, or "
            "several of them, such as a column of a table"
        )
    size = batch_size
    if isinstance(sequence, Sized) and threads is not None:
        # Equal batches end together: 20 photos for 2 threads are 10 and 10, not 16 and 4.
        rounds = math.ceil(len(sequence) / (batch_size * threads))
        equal_size = math.ceil(len(sequence) / max(rounds * threads, 1))
        size = min(batch_size, max(MIN_BATCH, equal_size))
    read = partial(read_streamed_photo, preprocessing=preprocessing, photo_side=photo_side)
    yield from batched(read_ahead(read, enumerate(sequence), BATCHES_AHEAD * size), size)
