"""A process that decodes uploads, so that one that costs too much can be ended; needs no torch.

`captioning.serving` starts `main`, and sends it jobs.
"""

import os
import pickle
import sys
from contextlib import suppress
from typing import NamedTuple

from PIL import AvifImagePlugin

from captioning.data.framing import Fit, Place, decoded_side, jpeg, seen_place, square
from captioning.data.images import Upload, read_photo
from captioning.errors import InputError

LENGTH = 8  # bytes before an answer that hold its length
COMMAND = "from captioning.data.decoder import main; main()"


class Job(NamedTuple):
    """What to make of an upload."""

    upload: Upload
    side: int  # of the square that the model sees, in pixels
    fit: Fit
    long_side: int  # of the JPEG, in pixels; 0 for none
    memory: int  # the most bytes that the process may have, where the system can limit them


class DecodedUpload(NamedTuple):
    """An upload as the model sees it, and a small copy."""

    pixels: bytes  # of the square, row by row in RGB
    place: Place  # of the square in the photo
    size: tuple[int, int]  # width and height of the photo in pixels
    jpeg: str  # a data URI


def decode_upload(job: Job) -> DecodedUpload:
    """The upload as the model sees it; raises InputError as `read_photo`."""
    photo = read_photo(job.upload, max(decoded_side(job.side), job.long_side))
    pixels, place = square(photo, seen_place(photo.size, job.fit), job.side)
    small_copy = jpeg(photo.image, job.long_side) if job.long_side else ""
    return DecodedUpload(pixels.tobytes(), place, photo.size, small_copy)


def limit_memory(most: int) -> None:
    """Let this process have at most so many bytes, where the system can do this."""
    if sys.platform != "win32":
        import resource

        _, highest = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, highest))


def main() -> None:
    """Answer jobs on standard input until it ends.

    A job is a pickle. An answer is its length and a pickle: a DecodedUpload, or an InputError. An
    empty answer comes first, when the process is ready.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints would break the protocol
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # processes are as many as may be busy
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.options.DECODE_THREADS = 1
    answer = b""
    with suppress(EOFError, BrokenPipeError):  # the server has ended
        while True:
            answers.write(len(answer).to_bytes(LENGTH) + answer)
            answers.flush()
            job = pickle.load(sys.stdin.buffer)
            limit_memory(job.memory)
            try:
                answer = pickle.dumps(decode_upload(job))
            except InputError as error:
                answer = pickle.dumps(error)
            del job
