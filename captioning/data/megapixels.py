"""How many pixels a photo may have; imports nothing heavy, for the sake of the options."""

from typing import Annotated

from captioning.errors import InputError
from captioning.numbers import Range, shown, unmet_requirement

MEGAPIXELS = 100.0
"""Of more a photo is refused unless a call says otherwise; most cameras stay below it."""

MOST_MEGAPIXELS = 178.0
"""What can be allowed at most: Pillow's own limit against decompression bombs."""

PhotoMegapixels = Annotated[float, Range(0, round(MOST_MEGAPIXELS), above=True)]

MAX_PIXELS = int(MEGAPIXELS * 1_000_000)


def pixels_of(megapixels: PhotoMegapixels) -> int:
    """The limit in pixels that an option, a config or a call gives in millions.

    Raises:
        InputError: it is not above 0 and at most `MOST_MEGAPIXELS`.
    """
    if wanted := unmet_requirement(PhotoMegapixels, megapixels):
        raise InputError(f"max_megapixels: give {wanted}, not {shown(megapixels)}")
    return int(megapixels * 1_000_000)
