"""Limits on the pixels, memory and time of a photo, checked before it is decoded."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from captioning.data.megapixels import MAX_PIXELS
from captioning.errors import InputError

MAX_SIDE = 65_535
"""The most pixels of width or height: JPEG's maximum. Pillow keeps a pointer for each row."""

BYTES_PER_PIXEL = 10
"""Memory for decoding per pixel of the limit; a plain photo takes 8, itself and a copy."""

# WebP's animation decoder keeps two canvases and returns a third. The headers of the other formats
# give no bound; these are measured.
FORMAT_BYTES = {"AVIF": 20, "HEIF": 20, "JPEG2000": 30, "WEBP": 20}
FORMATS = frozenset({"BMP", "DIB", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", *FORMAT_BYTES})
"""The supported formats by Pillow's names. Others run programs (EPS) or unpack anything (FITS)."""

MAX_TILE = 32_000_000
"""The most pixels of a TIFF's tile, which is decoded whole, however small the photo is."""

MAX_SCANS = 100
"""The most scans of a progressive JPEG, libtiff's limit; encoders write about 10.

Each scan costs a pass over all pixels, even without data.
"""

MAX_TEXT, MAX_COMMENTS = 16_000_000, 100
"""The most bytes and comments of a PNM in text, which Pillow parses slowly, in Python."""

MAX_READS, MAX_HEADER, MAX_FILE = 2_000_000, 256_000_000, 1_000_000_000
"""The most reads of a photo's file, bytes before its pixels, and bytes in all."""


class PhotoSizeError(InputError):
    """A photo that is too large to be decoded safely."""


class MeteredFile(io.BufferedReader):
    """A photo's file with limits on the size of its header and on the number of reads.

    Args:
        raw: an unbuffered file, or bytes in memory.
        name: its name in errors.
        max_reads: the most calls of `read`.
        max_header: the most bytes before the pixels.
    """

    def __init__(
        self,
        raw: io.RawIOBase | io.BytesIO,
        name: str,
        max_reads: int = MAX_READS,
        max_header: int = MAX_HEADER,
    ) -> None:
        super().__init__(raw)
        self._name = name
        self._max_reads, self._max_header = max_reads, max_header
        self._reads = self._bytes = 0
        self.is_header_read = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes, as any file does.

        Raises:
            PhotoSizeError: the photo's header is too long, or the file takes too many reads.
        """
        self._reads += 1
        if self._reads > self._max_reads:
            raise PhotoSizeError(
                f"{self._name}: in too many small pieces to be read; convert it to JPEG or PNG"
            )
        most = self._max_header + 1
        content = super().read(min(size, most) if size and size > 0 else most)
        self._bytes += len(content)
        if self._bytes > self._max_header and not self.is_header_read:
            raise PhotoSizeError(
                f"{self._name}: more than {self._max_header // 1_000_000} MB before its pixels; "
                "convert it to JPEG or PNG"
            )
        return content


def check_header(
    image: Image.Image, file: MeteredFile, name: str, max_pixels: int, remedy: str
) -> None:
    """Check a photo's limits by its header and, for some formats, a scan of its file.

    Args:
        image: as `PIL.Image.open` gives it, not yet decoded.
        file: the image's file; its position is restored.
        name: the photo's name in errors.
        max_pixels: the most pixels.
        remedy: the error's advice about too many pixels.

    Raises:
        PhotoSizeError: it has more pixels or a longer side, or decoding takes too much memory or
            time.
        InputError: its format is not supported.
    """
    if image.format not in FORMATS:
        raise InputError(f"{name}: {image.format} files are not read; convert it to JPEG or PNG")
    check_pixels(image, name, max_pixels, remedy)
    start = file.tell()
    tile = getattr(image, "tag_v2", {})
    if tile.get(322, 0) * tile.get(323, 0) > MAX_TILE:
        raise PhotoSizeError(
            f"{name}: tiles of {tile[322]} x {tile[323]} pixels are too large; convert it to PNG"
        )
    if image.info.get("progressive") and _count(file, b"\xff\xda", MAX_SCANS) > MAX_SCANS:
        raise PhotoSizeError(
            f"{name}: a progressive JPEG of more than {MAX_SCANS} scans; convert it to PNG"
        )
    if any(part[0] == "ppm_plain" for part in getattr(image, "tile", ())) and (
        file.seek(0, io.SEEK_END) > MAX_TEXT or _count(file, b"#", MAX_COMMENTS) > MAX_COMMENTS
    ):
        raise PhotoSizeError(
            f"{name}: a PNM in text of more than {MAX_TEXT // 1_000_000} MB or {MAX_COMMENTS} "
            "comments takes too long to read; convert it to PNG"
        )
    file.seek(start)


def check_pixels(image: Image.Image, name: str, max_pixels: int, remedy: str) -> None:
    """Check the limits on a photo's pixels, on each side and on memory for its format.

    Raises:
        PhotoSizeError: it is over a limit.
    """
    width, height = image.size
    if width * height > max_pixels:
        raise PhotoSizeError(
            f"{name}: {width} x {height} pixels are more than the {max_pixels / 1e6:g} million "
            f"that are read here; {remedy}"
        )
    if max(width, height) > MAX_SIDE:
        raise PhotoSizeError(
            f"{name}: {width} x {height} pixels; neither side may have more than {MAX_SIDE}; "
            "scale the photo down"
        )
    most = max(max_pixels, MAX_PIXELS) * BYTES_PER_PIXEL
    if decoding_bytes(image, width * height) > most:
        raise PhotoSizeError(
            f"{name}: {width} x {height} pixels in this kind of {image.format} take more than "
            f"{most / 1e9:g} GB to decode; scale the photo down or convert it to PNG"
        )


def decoding_bytes(image: Image.Image, pixels: int) -> int:
    """An upper bound of the bytes that it takes to decode a photo and convert it to RGB.

    Args:
        image: a photo, not yet decoded; it may be set to decode at reduced size.
        pixels: of the file.
    """
    decoded = image.size[0] * image.size[1]
    if image.info.get("progressive"):  # all coefficients are kept, 16 bits each
        coefficients = pixels * 2 * getattr(image, "layers", 4)
        return max(coefficients + 4 * decoded, 8 * decoded)
    if image.format == "TIFF":  # a strip may be the whole photo
        bits = getattr(image, "tag_v2", {}).get(258, (8,))
        samples = getattr(image, "tag_v2", {}).get(277, 1)
        return max(8, 4 + max(bits) * samples // 8) * decoded
    return FORMAT_BYTES.get(image.format or "", 8) * decoded


class MemoryBudget:
    """A memory budget for threads that decode photos; threads without room wait in order.

    A photo larger than the whole budget is decoded alone.

    Args:
        total: the budget in bytes.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._freed = threading.Condition()
        self._turn = threading.Lock()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve this many bytes until the block ends."""
        with self._turn, self._freed:
            self._freed.wait_for(lambda: not self._taken or self._taken + size <= self._total)
            self._taken += size
        try:
            yield
        finally:
            with self._freed:
                self._taken -= size
                self._freed.notify()


MEMORY = MemoryBudget(MAX_PIXELS * BYTES_PER_PIXEL)
"""The budget that all threads of a process share."""


def _count(file: MeteredFile, mark: bytes, enough: int) -> int:
    """How often a mark occurs in a file; stops counting beyond `enough`."""
    file.seek(0)
    found, last = 0, b""
    while found <= enough and (block := file.read(1 << 20)):
        found += (last + block).count(mark)
        last = block[-len(mark) + 1 :] if len(mark) > 1 else b""
    return found
