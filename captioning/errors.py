"""Exceptions for bad input, as opposed to bugs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr

from captioning.terminal import printable


class InputError(Exception):
    """Bad input; its message is one line that names the input and the remedy.

    The command line prints only the message, without a traceback, and exits with code 1.

    Args:
        message: converted to one line of printable text. From a message with a DataLoader worker's
            traceback, only the original message is kept.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        if text.startswith("Caught ") and "\nOriginal Traceback" in text:
            _, _, text = text.rstrip().rpartition("\n")[2].partition(": ")
        super().__init__(printable(text.strip()))


class PhotoError(InputError):
    """A photo that cannot be captioned, beside others that can.

    Args:
        path: the photo's path, or another name for it.
        reason: what is wrong with it.
    """

    __match_args__ = ("path", "reason")

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type["PhotoError"], tuple[str | Path, str]]:
        return type(self), (self.path, self.reason)


@contextmanager
def reading(path: object, *errors: type[Exception]) -> Iterator[None]:
    """Turn what goes wrong in opening or parsing a file into ``path: what it says``.

    Args:
        path: the file, or the file and the place in it.
        errors: a library's errors, beside OSError, ValueError and those of Python's parsers.

    Raises:
        InputError: the block has raised one of these errors.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else str(error)
        raise InputError(f"{path}: {reason}") from error
    except (ValueError, EOFError, RecursionError, *errors) as error:  # type: ignore[misc]
        raise InputError(f"{path}: {str(error) or type(error).__name__}") from error


_SHORT = Repr()  # a value may be huge or deeply nested
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxstring = 3, 8, 50


def shown(value: object) -> str:
    """A value for a message, in one line of at most 60 characters."""
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
