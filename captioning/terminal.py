"""Safe text for terminals: escapes control characters in file names and vocabularies.

All output goes through `printable` or `printable_json`; error messages do so when they are made.
Names may contain escape sequences, line breaks, marks that reverse the direction of writing, and
bytes that are not UTF-8.
"""

import codecs
import json
import re
import sys
from typing import Any

# Controls, direction marks, line separators, and surrogates (file names that are not UTF-8).
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
NAMED = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}

HANDLER = "captioning.escapes"
"""The registered name of the streams' error handler."""


def printable(*cells: object) -> str:
    r"""The cells of one line, separated by tabs, with unprintable characters escaped.

    A byte of a file name that is not UTF-8 becomes `\xe9`, a control character `\x1b`, `\n` or
    `\u009b`. Printable text is unchanged, so the function is idempotent.
    """
    return "\t".join(UNPRINTABLE.sub(_escaped, str(cell)) for cell in cells)


def printable_json(value: Any) -> str:
    """A value as one line of JSON, with unprintable characters as JSON escapes."""
    line = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def escape_what_cannot_be_encoded() -> None:
    r"""Let stdout and stderr print escapes such as `\u00e9` for characters outside their encoding.

    The escapes are JSON's, so that JSON stays valid. Streams without `reconfigure` are unchanged.
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
