"""How many pixels a photo may have; imports nothing heavy, for the sake of the options."""

from captioning.errors import InputError

MEGAPIXELS = 100.0
"""Of more a photo is refused unless a call says otherwise; most cameras stay below it."""

MOST_MEGAPIXELS = 178.0
"""What can be allowed at most: Pillow's own limit against decompression bombs."""

MAX_PIXELS = int(MEGAPIXELS * 1_000_000)


def pixels_of(megapixels: float) -> int:
    """The limit in pixels that an option, a config or a call gives in millions.

    Raises:
        InputError: it is not above 0 and at most `MOST_MEGAPIXELS`.
    """
    if not 0 < megapixels <= MOST_MEGAPIXELS:
        raise InputError(
            f"max_megapixels {megapixels!r} is not above 0 and at most {MOST_MEGAPIXELS:g}"
        )
    return int(megapixels * 1_000_000)
