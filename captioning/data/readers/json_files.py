"""JSON files that are recognised by their keys, whatever their names."""

import re
from pathlib import Path

from captioning.errors import InputError
from captioning.untrusted import MAX_BYTES, opened

MOST_FILES = 100
"""JSON files that are looked into; a folder of more has one for each photo."""

BLOCK, OVERLAP = 2**22, 256  # bytes


def json_files(root: Path) -> list[Path]:
    """The JSON files in a folder and in its folder annotations, or `root` itself if it is one."""
    if root.is_file():
        return [root] if root.suffix.lower() == ".json" else []
    found = [*sorted(root.glob("*.json")), *sorted((root / "annotations").glob("*.json"))]
    return found if len(found) <= MOST_FILES else []


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file has all of these keys, at any depth; it is searched, not parsed."""
    wanted = {re.compile(rb'"%b"\s*:' % key.encode()) for key in keys}
    try:
        with opened(file) as content:
            last = b""
            for _ in range(MAX_BYTES // BLOCK + 1):
                block = content.read(BLOCK)
                text = last + block
                wanted = {key for key in wanted if not key.search(text)}
                last = text[-OVERLAP:]
                if not wanted or not block:
                    return not wanted
    except (InputError, OSError):  # whoever reads the file says why it cannot
        pass
    return False
