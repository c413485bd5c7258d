"""Atomic writing of files."""

import errno
import glob
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captioning.errors import InputError, as_input_error
from captioning.untrusted import OPENING, address_of

_written: dict[Path, None] | None = None
"""The files that `written_whole` has written within `all_kept`."""

PATIENCE = 10.0
"""Seconds to wait for a program that reads a pipe, or for one that is about to end."""


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
    path = _on_this_machine(path)
    temporary = None
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder, so no file can be written there; give a file name")
        is_stream = _is_stream(path)
        temporary = _temporary(path, None if is_stream else path.resolve().parent)
        yield temporary
        if is_stream:
            _copy_to_stream(temporary, path)
        else:
            temporary.replace(path.resolve())
            if _written is not None:
                _written[path] = None
    except OSError as error:
        if temporary and error.filename not in (None, str(temporary), str(path)):
            raise  # an error of another file, which the block reads
        raise as_input_error(error, path, "cannot be written") from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def _on_this_machine(path: str | Path) -> Path:
    """The path, unless it would become a folder with the odd name ``s3:`` or ``~``."""
    if address := address_of(path):
        raise InputError(f"{address}: an address; files are written to this machine's folders only")
    first, *rest = Path(path).parts or ("",)
    if first.startswith("~") and rest:
        raise InputError(f"{path}: {first} is not expanded here; give the whole path")
    return Path(path)


def remove_unfinished(path: str | Path) -> None:
    """Remove temporary files of `path` that killed processes left; no process may be writing it."""
    path = Path(path)
    for file in path.parent.glob(glob.escape(_prefix(path)) + "*" + glob.escape(path.suffix)):
        file.unlink(missing_ok=True)


def _temporary(path: Path, folder: Path | None) -> Path:
    """A new file in the folder, or a private one in the system's temporary folder if None."""
    if folder is None:
        handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=path.suffix)
        os.close(handle)
        return Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{_prefix(path)}{secrets.token_hex(8)}{path.suffix}"
    temporary.touch(exist_ok=False)
    return temporary


def _prefix(path: Path) -> str:
    """The prefix of temporary names, short enough for the longest file names."""
    return f".{path.stem[:32]}."


def _is_stream(path: Path) -> bool:
    """Whether `path` must not be replaced: a device, a pipe, or our standard output."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(status.st_mode) or _descriptor(status) is not None


def _descriptor(status: os.stat_result) -> int | None:
    """The descriptor of our standard output or error, if it is this file."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
        except OSError:  # closed
            continue
    return None


def _copy_to_stream(content: Path, stream: Path) -> None:
    """Write the content of a file to a stream."""
    descriptor = _descriptor(stream.stat())
    if descriptor is None:
        target = _opened_stream(stream)
    else:  # keeps the order with earlier prints
        for output in filter(None, (sys.stdout, sys.stderr)):
            output.flush()
        target = os.dup(descriptor)
    with content.open("rb") as source, os.fdopen(target, "wb") as file:
        shutil.copyfileobj(source, file)


def _opened_stream(stream: Path) -> int:
    """The descriptor of a device or a pipe; a pipe that nobody reads is an error after a while."""
    due = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(stream, os.O_WRONLY | OPENING)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > due:
                raise
            time.sleep(0.1)
        else:
            if sys.platform != "win32":
                os.set_blocking(descriptor, True)
            return descriptor


@contextmanager
def all_kept() -> Iterator[None]:
    """Check in the end that all files that were written within the block are still there.

    What was written within another such block inside it is checked at the end of that one alone.

    Raises:
        InputError: some are not, since somebody removed their folder meanwhile.
    """
    global _written
    before, _written = _written, {}
    try:
        yield
        gone = [path for path in _written if not path.exists()]
    finally:
        _written = before
    if gone:
        raise InputError(
            f"{gone[0]}: removed after it was written, with {len(gone) - 1} more; run the command "
            "again"
        )


def forget_written(path: str | Path) -> None:
    """Let `all_kept` not look for a file that this process has removed again."""
    if _written is not None:
        _written.pop(Path(path), None)


def made_folder(path: str | Path) -> Path:
    """A writable folder, created if missing.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    path = _on_this_machine(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise as_input_error(error, path, "not a writable folder") from None


@contextmanager
def only_writer(folder: str | Path) -> Iterator[None]:
    """Hold a folder, so that no other process which asks for it writes there meanwhile.

    The operating system ends the hold with the process, however that ends; a process that was just
    killed may have workers that end some seconds later. On Windows, and on file systems without
    locks, nothing is held.

    Raises:
        InputError: another process holds the folder.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    due = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > due:
                    raise InputError(
                        f"{folder}: another process is writing there; wait until it ends, or give "
                        "another folder"
                    ) from None
                time.sleep(0.1)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically."""
    with written_whole(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n",
            encoding="utf-8",
            errors="backslashreplace",  # bytes of file names that are not UTF-8
        )
