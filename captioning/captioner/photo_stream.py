"""Batches of photos from a stream, which threads read ahead."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from captioning.data.framing import scaled_down
from captioning.data.images import DecodedPhoto, Upload
from captioning.data.preprocessing import Photo, PhotoSource, Preprocessing, View, is_one_photo
from captioning.errors import InputError, PhotoError, format_value, printable
from captioning.files import MAX_PATH_LENGTH
from captioning.threads import MIN_BATCH, batched, in_threads, read_ahead, thread_count

Result = TypeVar("Result")

BATCH_SIZE = 16
"""The most photos per batch, by default."""

AHEAD = 2
"""Batches whose photos are read ahead."""


class StreamedPhoto(NamedTuple):
    """A photo of a stream.

    Attributes:
        number: its place in the stream, from 0.
        photo: the photo as it was given, or scaled down to draw on; pixels and the bytes of a file
            have become an image.
        view: what the model sees of it.
    """

    number: int
    photo: PhotoSource | DecodedPhoto
    view: View


def photo_batches(
    photos: Photo | Iterable[Photo],
    work: Callable[[Sequence[StreamedPhoto | PhotoError]], Result],
    *,
    preprocessing: Preprocessing,
    device: torch.device,
    batch_size: int = BATCH_SIZE,
    in_turn: bool = False,
    photo_side: int | None = None,
) -> Iterator[Result]:
    """Yield the result of `work` for each batch of photos, in order; see `Captioner.batches`.

    Raises:
        InputError: `photos` are neither a photo nor several.
    """
    sequence: Any = [photos] if is_one_photo(photos) else photos
    if not isinstance(sequence, Iterable) or hasattr(sequence, "columns"):
        raise InputError(
            f"{format_value(photos)}: not a photo; give a path, an image, bytes or pixels, or "
            "several of them, such as a column of a table"
        )
    size, threads = batch_size, thread_count(device)
    if isinstance(sequence, Sized) and not in_turn:  # equal batches that keep all threads busy
        rounds = math.ceil(len(sequence) / (batch_size * threads))
        equal_size = math.ceil(len(sequence) / max(rounds * threads, 1))
        size = min(batch_size, max(MIN_BATCH, equal_size))
    read = partial(read_streamed_photo, preprocessing=preprocessing, photo_side=photo_side)
    streamed_photos = read_ahead(read, enumerate(sequence), AHEAD * size)
    yield from in_threads(work, batched(streamed_photos, size), device, in_turn=in_turn)


def read_streamed_photo(
    numbered_photo: tuple[int, Photo],
    preprocessing: Preprocessing,
    photo_side: int | None = None,
) -> StreamedPhoto | PhotoError:
    """Read a photo, with its place in a stream, or return why it cannot be read.

    With `photo_side`, the decoded photo is kept with so many pixels on its longer side.
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
