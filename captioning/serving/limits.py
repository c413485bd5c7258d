"""How much of the server a stranger may use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits beyond which the server refuses.

    Attributes:
        bytes: of the body of a request.
        pixels: of a photo, and of all photos being decoded at a time.
        seconds: from a request's header to its captions.
        requests: concurrent requests with photos, including those that wait.
        bodies: bytes of all bodies in memory at a time.
        connections: open at a time.
        header_seconds: from the start of a connection, or from the last answer on it, to the
            end of the next request's header.
        closing_seconds: for the client to receive the last answer, before its connection is cut.
        keep_alive: requests per connection.
    """

    bytes: int = 20_000_000
    pixels: int = 50_000_000
    seconds: float = 30.0
    requests: int = 64
    bodies: int = 256_000_000
    connections: int = 256
    header_seconds: float = 10.0
    closing_seconds: float = 3.0
    keep_alive: int = 1000
