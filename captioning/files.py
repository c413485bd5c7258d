"""Reads files with errors of one line, writes them atomically, and locks folders."""

import codecs
import glob
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from captioning.errors import InputError, reading

MAX_BYTES = 2 * 1024**3
"""Maximum size of a text file; COCO's largest has 450 MB."""

MAX_PATH_LENGTH = 4096
"""Maximum length of a path on Linux; longer text, such as base64, is no path."""

ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encodings of texts by their byte-order marks."""

SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
"""Suffixes of spreadsheets, which are no text."""

LOCK_TIMEOUT = 10.0
"""Seconds to wait for a locked folder: workers end some seconds after a killed command."""


SYSTEM_FOLDERS = frozenset(
    (
        *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),
        *("$recycle.bin", "system volume information", "lost+found", "__macosx"),
    )
)
"""Folders of thumbnails and deleted files of Synology, QNAP, Windows and macOS."""


def is_hidden(name: str) -> bool:
    """Whether the system or a program made a file of this name, such as macOS's ._photo.jpg."""
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


@contextmanager
def opened(path: str | Path) -> Iterator[BufferedReader]:
    """Open a file for reading. Pipes and devices are rejected, since they may be endless.

    Raises:
        InputError: the file is missing or is not a regular file, or the block cannot read it.
    """
    with reading(path):
        name = str(path)
        if name.startswith("data:"):
            raise InputError(f"{name[:40]}...: text, not a path; decode it to bytes first")
        if len(name) > MAX_PATH_LENGTH:
            raise InputError(f"{name[:40]}...: name too long; if it is a photo as text, decode it")
        if name.startswith("file:/"):
            raise InputError(f"{path}: an address; give the path")
        if re.match(r"\w\w+:/", name):
            raise InputError(f"{path}: an address, not a file; download it first")
        if Path(path).is_dir():
            os.scandir(path).close()  # raises if the folder cannot be read
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"{path}: not a regular file")
        with Path(path).open("rb") as file:
            yield file


def walk(
    folder: Path, unreadable: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk a folder as `os.walk` does: sorted, following links, without hidden names.

    Each folder is visited once.
    `unreadable` is called with the error of each folder that cannot be read.
    """
    visited: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        real_path = os.path.realpath(parent)
        is_new = real_path not in visited
        visited.add(real_path)
        folders[:] = sorted(name for name in folders if is_new and not is_hidden(name))
        if is_new:
            yield Path(parent), folders, sorted(name for name in names if not is_hidden(name))


def refuse_spreadsheet(path: str | Path) -> None:
    """Raise InputError if a file is a spreadsheet by its name."""
    if Path(path).suffix.lower() in SPREADSHEETS:
        raise InputError(f"{path}: a spreadsheet; save it as CSV (UTF-8), and give that file")


def read_text(path: str | Path) -> str:
    """Read the text of a file in UTF-8, or in UTF-16 with a byte-order mark.

    Raises:
        InputError: the file cannot be read, is too large, is a spreadsheet, or is in another
            encoding.
    """
    refuse_spreadsheet(path)
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES:,} bytes")
        content = file.read()
        mark, encoding = text_encoding(content)
        try:
            return content.removeprefix(mark).decode(encoding)
        except UnicodeDecodeError:
            raise InputError(f"{path}: not UTF-8 text; save it with the encoding UTF-8") from None


def text_encoding(content: bytes) -> tuple[bytes, str]:
    """The byte-order mark of a text, and Python's name for its encoding; without a mark UTF-8."""
    for mark, encoding in ENCODINGS.items():
        if content.startswith(mark):
            return mark, encoding
    return b"", "utf-8"


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raises InputError as `read_text` does, or if it is not JSON."""
    text = read_text(path)
    with reading(path):
        return json.loads(text)


def dotted_items(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested settings with their dotted keys."""
    if isinstance(settings, dict) and settings:
        for name, value in settings.items():
            yield from dotted_items(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, settings


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Give a temporary path that is renamed to `path` when the block ends without an error.

    It lies beside `path`, whose parent folder is created if missing, and has its suffix, by which
    many writers choose the format. A symbolic link is replaced, not its target.

    Raises:
        InputError: the file cannot be written, or `path` is a folder, a device or a pipe.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file; give the name of a file")
    folder = path.parent
    # The stem is cut, so that the name is not too long.
    temporary = folder / f".{path.stem[:32]}.{secrets.token_hex(8)}{path.suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path), str(folder)):
            raise  # of another file, which the block reads
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically."""
    with written_whole(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n",
            encoding="utf-8",
            errors="backslashreplace",  # bytes of file names that are not UTF-8
        )


def remove_unfinished(path: str | Path) -> None:
    """Remove temporary files that killed processes left; no process may be writing `path`."""
    path = Path(path)
    for file in path.parent.glob(f".{glob.escape(path.stem[:32])}.*{glob.escape(path.suffix)}"):
        file.unlink(missing_ok=True)


def made_folder(path: str | Path) -> Path:
    """Create a folder if it is missing; raises OSError if it is not writable."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path):
        return path


@contextmanager
def only_writer(folder: str | Path) -> Iterator[None]:
    """Lock a folder, which is created if missing.

    Raises:
        InputError: another process holds the lock.
    """
    from filelock import FileLock, Timeout  # only here: other commands need not wait for it

    try:
        with FileLock(Path(folder, ".lock"), timeout=LOCK_TIMEOUT):
            yield
    except Timeout:
        raise InputError(
            f"{folder}: another process is writing there; wait until it ends"
        ) from None
