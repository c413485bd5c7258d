"""Safe text for terminals: escapes control characters in file names and vocabularies.

All output goes through `printable` or `printable_json`; error messages do so when they are made.
"""

import json
import re
from typing import Any

# Controls, direction marks, line separators, and surrogates (file names that are not UTF-8).
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)


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


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode() if code < 0x80 else f"\\u{code:04x}"
