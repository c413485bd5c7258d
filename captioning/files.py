"""Files that are written whole or not at all, and folders that one process at a time writes to."""

import glob
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captioning.errors import InputError

PATIENCE = 10.0
"""Seconds to wait for a folder: the workers of a killed command end some seconds after it."""


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path, renamed to `path` when the block ends without an error.

    It lies beside `path`, whose parent folder is created if missing. After an error, `path` is
    unchanged. The temporary name has the suffix of `path`, since many writers choose the format by
    it. The target of a symbolic link is replaced. Devices and pipes, such as /dev/stdout, receive
    the content after the block.

    Raises:
        InputError: the folder or the file cannot be written to, or `path` is a folder itself.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: a folder; give the name of a file")
    is_stream = path.exists() and not path.is_file()
    folder = Path(tempfile.gettempdir()) if is_stream else path.resolve().parent
    temporary = folder / f"{_prefix(path)}{secrets.token_hex(8)}{path.suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        try:
            yield temporary
            if is_stream:
                with temporary.open("rb") as content, path.open("wb") as stream:
                    shutil.copyfileobj(content, stream)
            else:
                temporary.replace(path.resolve())
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path), str(folder)):
            raise  # an error of another file, which the block reads
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def remove_unfinished(path: str | Path) -> None:
    """Remove temporary files of `path` that killed processes left; no process may be writing it."""
    path = Path(path)
    for file in path.parent.glob(f"{glob.escape(_prefix(path))}*{glob.escape(path.suffix)}"):
        file.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    """The prefix of temporary names, short enough for the longest file names."""
    return f".{path.stem[:32]}."


def made_folder(path: str | Path) -> Path:
    """A folder, created if missing, and tried now, so that no work is lost later.

    Raises:
        OSError: it cannot be made or written to.
    """
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
        with FileLock(Path(folder, ".lock"), timeout=PATIENCE):
            yield
    except Timeout:
        raise InputError(
            f"{folder}: another process is writing there; wait until it ends, or give another "
            "folder"
        ) from None


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically."""
    with written_whole(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n",
            encoding="utf-8",
            errors="backslashreplace",  # bytes of file names that are not UTF-8
        )
