"""Text for a terminal: whatever a file name or a vocabulary holds, it moves no cursor.

All that is printed goes through `printable`, or through `printable_json`; messages of errors do so
when they are made. Names can hold escape sequences, line breaks, marks that turn the direction of
writing around, and bytes that are no UTF-8.
"""

import codecs
import json
import re
import sys
from typing import Any

# Controls, marks of direction, separators of lines, and halves of surrogate pairs, by which Python
# stands for the bytes of file names that are no UTF-8.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
NAMED = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}

HANDLER = "captioning.escapes"
"""The error handler of the streams, by the name under which codecs know it."""


def printable(*cells: object) -> str:
    r"""The cells of one line, with tabs between them and escapes in place of what is no text.

    A byte of a file name that is no UTF-8 becomes `\xe9`, a control character `\x1b`, `\n` or
    `\u009b`. What is printable stays as it is, so that doing it again changes nothing.
    """
    return "\t".join(UNPRINTABLE.sub(_escaped, str(cell)) for cell in cells)


def printable_json(value: Any) -> str:
    """A value as one line of JSON that holds no such characters either, only JSON's escapes."""
    line = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def escape_what_cannot_be_encoded() -> None:
    r"""Let stdout and stderr print `\u00e9` where their encoding has no such character.

    These are escapes of JSON, so that JSON stays JSON. A stream that cannot change stays as it is.
    """
    codecs.register_error(HANDLER, _encodable)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not stream.closed:
            reconfigure(errors=HANDLER)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return NAMED.get(character) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")


def _encodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    escapes = (f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
    return "".join(escapes), error.end
