"""Files that are either whole or not there."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captioning.errors import InputError


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to `path` when the block ends without an error.

    The parent folder is made if need be. After an error `path` is as it was before. The temporary
    name ends like `path`, since many writers choose the format by it.

    Raises:
        InputError: the folder cannot be written to, or `path` is a folder itself.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: a folder, so no file can be written there; give a file name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix
        )
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another place"
        ) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes private files
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def made_folder(path: str | Path) -> Path:
    """The folder, made if need be, to which files can be written.

    Raises:
        InputError: it cannot be made or written to.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise InputError(
            f"{path}: no folder that can be written to ({error.strerror}); choose another place"
        ) from None


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n",
            encoding="utf-8",
            errors="backslashreplace",  # what is no UTF-8 in a file name, as JSON escapes it
        )


def read_json(path: str | Path) -> Any:
    """The value of a UTF-8 JSON file, with or without a byte-order mark.

    Raises:
        InputError: the file is missing, unreadable or no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from None
