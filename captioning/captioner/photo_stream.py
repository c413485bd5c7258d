"""Photos of a stream, as the model sees them."""

from pathlib import Path
from typing import NamedTuple

from captioning.data.framing import scaled_down
from captioning.data.images import DecodedPhoto, Upload
from captioning.data.preprocessing import Photo, PhotoSource, Preprocessing, View
from captioning.errors import InputError, PhotoError, printable
from captioning.files import MAX_PATH_LENGTH


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
