"""Decodes uploads in a process that the server can end if a photo takes too much; needs no torch.

`captioning.serving` starts `main` and sends it jobs.
"""

import mmap
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from PIL import AvifImagePlugin

from captioning.data.framing import Box, Fit, crop_box, decoded_side, jpeg, square
from captioning.data.images import Upload, read_reduced_photo
from captioning.errors import InputError

LENGTH = 8  # bytes of the length in front of an answer
COMMAND = "from captioning.data.decoder import main; main()"


class Job(NamedTuple):
    """What to make of an upload."""

    upload: Upload
    side: int  # of the square that the model sees, in pixels
    fit: Fit
    long_side: int  # of the JPEG, in pixels; 0 for none
    memory: int  # most bytes beyond those of the idle process, where the system has limits


class DecodedUpload(NamedTuple):
    """An upload as the model sees it, and a small copy."""

    pixels: bytes  # of the square, row by row in RGB
    crop: Box  # of the square in the photo
    size: tuple[int, int]  # width and height of the photo in pixels
    jpeg: str  # a data URI


def decode_upload(job: Job) -> DecodedUpload:
    """Decode an upload; raises InputError as `read_reduced_photo` does."""
    photo = read_reduced_photo(job.upload, max(decoded_side(job.side), job.long_side))
    image, crop = square(photo, crop_box(photo.size, job.fit), job.side)
    small_copy = jpeg(photo.image, job.long_side) if job.long_side else ""
    return DecodedUpload(image.tobytes(), crop, photo.size, small_copy)


def address_space() -> int:
    """Return the bytes of this process's address space, mapped files included; 0 if unknown."""
    try:
        pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:  # only Linux has this file
        return 0
    return int(pages) * mmap.PAGESIZE


def limit_memory(limit: int) -> None:
    """Limit the memory of this process to so many bytes, where the system can."""
    if sys.platform != "win32":
        import resource

        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))


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
    idle_memory = address_space()
    answer = b""
    with suppress(EOFError, BrokenPipeError):  # the server has ended
        while True:
            answers.write(len(answer).to_bytes(LENGTH) + answer)
            answers.flush()
            job = pickle.load(sys.stdin.buffer)
            if idle_memory:
                limit_memory(idle_memory + job.memory)
            try:
                answer = pickle.dumps(decode_upload(job))
            except InputError as error:
                answer = pickle.dumps(error)
            del job
