"""Limits on the pixels of a photo; light to import, since command-line options need it."""

from typing import Annotated

from annotated_types import Interval

from captioning.errors import InputError
from captioning.numbers import shown, unmet_requirement

MEGAPIXELS = 100.0
"""The default limit of a photo in megapixels; most cameras stay below it."""

MOST_MEGAPIXELS = 178.0
"""The largest limit: Pillow's own against decompression bombs."""

PhotoMegapixels = Annotated[float, Interval(gt=0, le=round(MOST_MEGAPIXELS))]

MAX_PIXELS = int(MEGAPIXELS * 1_000_000)


def pixels_of(megapixels: PhotoMegapixels) -> int:
    """A limit in pixels, from the megapixels of an option, a config or a call.

    Raises:
        InputError: it is not above 0 and at most `MOST_MEGAPIXELS`.
    """
    if wanted := unmet_requirement(PhotoMegapixels, megapixels):
        raise InputError(f"max_megapixels: give {wanted}, not {shown(megapixels)}")
    return int(megapixels * 1_000_000)
