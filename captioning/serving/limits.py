"""How much of the server a stranger may use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is refused rather than tried.

    Attributes:
        bytes: of the body of a request.
        pixels: of a photo.
        seconds: from a request's first byte to its captions.
        requests: with photos that are answered at a time, those that wait included.
        bodies: bytes of all bodies that are in memory at the same time.
    """

    bytes: int = 20_000_000
    pixels: int = 50_000_000
    seconds: float = 30.0
    requests: int = 64
    bodies: int = 256_000_000
