"""Small files that take seconds, minutes or gigabytes to decode."""

import struct

from PIL import Image

from tests.conftest import image_file

SIDE = 4096  # pixels


def progressive_jpeg(scans: int = 10_000, side: int = SIDE) -> bytes:
    """A grey JPEG whose last scan comes again and again."""
    image, end = Image.new("L", (side, side), 128), b"\xff\xd9"
    data = image_file(image, "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -len(end)]
    return data.removesuffix(end) + scans * last + end


def jpeg_after(segments: bytes) -> bytes:
    """A JPEG with more between its beginning and its first segment."""
    data = image_file(Image.new("L", (8, 8)), "JPEG")
    return data[:2] + segments + data[2:]


def fill_bytes(size: int) -> bytes:
    """A JPEG with many of the bytes that may stand before a segment."""
    return jpeg_after(size * b"\xff")


def jpeg_comments(size: int) -> bytes:
    """A JPEG of many empty comments."""
    return jpeg_after(size // 4 * b"\xff\xfe\0\2")


def gif_comments(size: int) -> bytes:
    """A GIF of one comment after another."""
    data = image_file(Image.new("L", (8, 8)), "GIF")
    start = data.index(b"\x2c", 13 + 3 * 2 ** ((data[10] & 7) + 1))
    return data[:start] + size // 6 * b"\x21\xfe\1x\0" + data[start:]


def plain_ppm(size: int) -> bytes:
    """A PPM of numbers in text."""
    side = int((size / 6) ** 0.5)
    return b"P3 %d %d 255\n" % (side, side) + 3 * side * side * b"7 "


def tiff_of_one_tile(side: int = 26_000) -> bytes:
    """A TIFF of one pixel, in a compressed tile of side x side pixels."""
    tags = [(256, 1), (257, 1), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side)]
    tile = b"\x78\x9c\x03\x00\x00\x00\x00\x01"
    tags += [(324, 8 + 2 + 12 * 10 + 4), (325, len(tile))]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + tile
