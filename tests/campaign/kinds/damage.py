"""Bytes of a file, damaged."""

from random import Random

TELLING = (b"\0", b"\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
"""Values that sizes, counts and offsets should not have."""


def damaged(content: bytes, random: Random) -> bytes:
    """The bytes, of which some are changed, lost, doubled, or replaced."""
    for _ in range(random.choice((1, 1, 2, 5))):
        content = random.choice(DAMAGES)(content, random)
    return content


def _flipped(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 3, 10, 100))):
        if changed:
            changed[_place(changed, random)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncated(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def _overwritten(content: bytes, random: Random) -> bytes:
    at, value = _place(content, random), random.choice(TELLING)
    return content[:at] + value + content[at + len(value) :]


def _inserted(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + random.randbytes(random.choice((1, 4, 1000))) + content[at:]


def _lost(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + content[at + random.choice((1, 4, 100)) :]


def _doubled(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + content[at : at + random.choice((4, 100, 10_000))] * 3 + content[at:]


def _place(content: bytes | bytearray, random: Random) -> int:
    """Anywhere, but half the time near the beginning, where headers are."""
    if not content:
        return 0
    return random.randrange(min(len(content), random.choice((64, len(content)))))


DAMAGES = (_flipped, _truncated, _overwritten, _inserted, _lost, _doubled)
