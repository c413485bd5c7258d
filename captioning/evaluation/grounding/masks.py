"""Decodes COCO's ``segmentation`` after checking it.

pycocotools reads and writes out of bounds if run lengths do not fit their size, so it gets only
polygons, with checked coordinates.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool

from captioning.errors import InputError

MAX_RUNS = 4_000_000
"""The most run lengths, or characters of compressed ones. COCO's longest have some thousand."""

MAX_OUTLINE = 2_000_000
"""The most pixels along an object's polygons; pycocotools takes 80 bytes for each."""

MAX_CHARACTERS = 7
"""The most characters of a compressed run length: 35 bits."""

REMEDY = "leave it out, or write it as COCO does"


def decoded(mask: Any, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """The pixels of COCO's ``segmentation``: polygons, or run lengths, compressed or not.

    Args:
        mask: as read.
        size: width and height of the photo in pixels.

    Raises:
        InputError: it cannot be decoded, or is of a photo of another size.
    """
    width, height = size
    try:
        if isinstance(mask, list):
            return _filled(mask, width, height)
        rows, columns = mask["size"]
        counts = mask["counts"]
        if [rows, columns] != [height, width]:
            raise InputError(
                f"a mask of {int(columns)} x {int(rows)} pixels but a photo of "
                f"{width} x {height}; use the photos that were annotated"
            )
        runs = counts if isinstance(counts, list) else _runs(counts)
        lengths = np.array(_checked(runs, width * height), dtype=np.int64)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise InputError(
            f"a segmentation that is neither polygons nor run lengths; {REMEDY}"
        ) from None
    inside = np.arange(len(lengths)) % 2 == 1
    return np.repeat(inside, lengths).reshape((height, width), order="F")


def _filled(polygons: list[Any], width: int, height: int) -> Bool[np.ndarray, "H W"]:
    """The pixels inside any of the polygons.

    Raises:
        InputError: coordinates lie far outside of the photo, or the outlines are too long.
        ValueError: they are no polygons.
    """
    from pycocotools import mask as run_length

    side = max(width, height)
    outline, numbers = 0.0, []
    for polygon in polygons:
        places = np.array(polygon, dtype=np.float64)
        if places.ndim != 1 or len(places) < 4 or len(places) % 2:
            raise ValueError
        if not ((-side <= places) & (places <= 2 * side)).all():  # nor are NaN
            raise InputError(
                f"a polygon that leaves a photo of {width} x {height} pixels; {REMEDY}"
            )
        numbers.append(places.tolist())
        corners = places.reshape(-1, 2)
        outline += np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum()
    if not polygons or outline > MAX_OUTLINE:
        raise InputError(f"polygons of {outline:.0f} pixels' outline; {REMEDY}")
    lengths = run_length.merge(run_length.frPyObjects(numbers, height, width))
    return run_length.decode(lengths).astype(bool)


def _checked(runs: list[Any], pixels: int) -> list[int]:
    """The run lengths, if their sum is the number of pixels.

    Raises:
        InputError: their sum is another.
        ValueError: they are too many, or not lengths.
    """
    if len(runs) > MAX_RUNS or not all(type(run) is int and run >= 0 for run in runs):
        raise ValueError
    if sum(runs) != pixels:
        raise InputError(f"run lengths that do not make up their {pixels} pixels; {REMEDY}")
    return runs


def _runs(characters: str | bytes) -> list[int]:
    """Decompress COCO's run lengths.

    A length is encoded with five bits per character, lowest first. From the fourth length on, the
    difference from the last but one is encoded.

    Raises:
        TypeError: the value is not text.
        ValueError: the text is not such an encoding, or is too long.
    """
    if len(characters) > MAX_RUNS:
        raise ValueError
    if not isinstance(characters, bytes):
        characters = characters.encode("ascii")
    runs: list[int] = []
    value, bits = 0, 0
    for character in characters:
        code = character - 48
        if not 0 <= code < 64 or bits >= 5 * MAX_CHARACTERS:
            raise ValueError
        value |= (code & 31) << bits
        bits += 5
        if code & 32:  # more characters of this length follow
            continue
        if code & 16:  # below zero
            value -= 1 << bits
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value, bits = 0, 0
    if bits:
        raise ValueError
    return runs
