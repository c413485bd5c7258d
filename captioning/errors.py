"""Exceptions for bad input, which are not bugs, and text that is safe for terminals."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeVar

Result = TypeVar("Result")

# Control characters, direction marks, line separators, and surrogates (bytes that are not UTF-8).
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)

REMOVED = {
    "--format": "--format was removed; captioning.compare returns the numbers in Python",
    "compare: Unknown option: --out": (
        "compare --out was removed; captioning.compare returns the numbers in Python"
    ),
    "Parameter --model specified multiple times": (
        "several models at once were removed; give one --model (ExponentialAverage averages the "
        "weights of one training)"
    ),
    "--trials": "--trials was removed; the p-value is of the bootstrap's --samples",
    "--hard": "--hard was removed; captioning shapes draws plain scenes",
    "--spice": "--spice was removed; score the captions.json of evaluate by pycocoevalcap",
    "--metric SPICE": (
        "--metric SPICE was removed; score the captions.json of evaluate by pycocoevalcap"
    ),
    "shapes_hard_scenes": "shapes_hard_scenes was removed; take shapes",
    "backbone 'plain'": (
        "backbone 'plain' was removed; train with small or another backbone, or use captioning "
        "0.4.0"
    ),
    "PhotoShards": (
        "PhotoShards was removed; take captioning.data.readers.HuggingFace for Parquet files and "
        "what save_to_disk writes, and unpack tar files"
    ),
    "SupervisedAttention": (
        "SupervisedAttention was removed; take captioning.training.GuidedAttention, which needs "
        "no boxes"
    ),
    "Option 'consensus'": (
        "the objective's option consensus was removed, because it made no measurable difference; "
        "delete it from the configuration"
    ),
}
"""Text in an error about a removed name, and the message to print instead."""

_SHORT = Repr()  # a value may be huge or deeply nested
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxstring = 3, 8, 50


class InputError(Exception):
    """Bad input: one printable line that names the input and the remedy.

    A DataLoader worker's traceback in the message is dropped.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        if text.startswith("Caught ") and "\nOriginal Traceback" in text:
            _, _, text = text.rstrip().rpartition("\n")[2].partition(": ")
        super().__init__(printable(text.strip()))


class PhotoError(InputError):
    """A photo that cannot be captioned.

    Args:
        path: the photo's path, or another name for it.
        reason: why.
    """

    __match_args__ = ("path", "reason")

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type["PhotoError"], tuple[str | Path, str]]:
        return type(self), (self.path, self.reason)


def raise_errors(results: Iterable[Result | PhotoError]) -> Iterator[Result]:
    """Yield the results of a stream; raises the first PhotoError."""
    for result in results:
        if isinstance(result, PhotoError):
            raise result
        yield result


@contextmanager
def reading(path: object, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors in opening or parsing a file into an InputError ``path: message``.

    Args:
        path: the file, or the file and a position in it.
        errors: further errors of a library, besides OSError, ValueError and parser errors.

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


def is_memory_full(error: BaseException) -> bool:
    """Whether Python, NumPy or PyTorch raised this for lack of memory, of the host or of a GPU."""
    is_torch_error = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(
        error
    )
    return is_torch_error or isinstance(error, MemoryError)  # without importing torch


def removal_message(message: object) -> str | None:
    """The message to print instead of an error about a removed name; None for other errors."""
    for name, line in REMOVED.items():
        if re.search(rf"(?<![\w-]){name}(?![\w-])", str(message)):
            return line
    return None


def format_value(value: object) -> str:
    """Format a value for a message, in one line of at most 60 characters."""
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def printable(*cells: object) -> str:
    r"""Join the cells of a line by tabs, with unprintable characters as `\x1b` or `\n`.

    A byte of a file name that is not UTF-8 becomes `\udce9`. Printable text is unchanged.
    """

    def escape(match: re.Match[str]) -> str:
        return match[0].encode("unicode_escape").decode()

    return "\t".join(UNPRINTABLE.sub(escape, str(cell)) for cell in cells)


def printable_json(value: Any) -> str:
    """Format a value as one line of JSON, with unprintable characters as JSON escapes."""
    line = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
