"""The command line: a command is a typed function, whose docstring is its help.

To add a command, write the function and name it in `COMMANDS`. Slow imports stay inside functions,
so that help is instant. What a command does, Python can call: ``captioning.evaluate(...)``.
"""

import logging
import os
import platform
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Literal

from cyclopts import App, CycloptsError, Parameter

from captioning import __version__
from captioning.configurable import import_modules
from captioning.errors import InputError, is_memory_full, printable, removal_message

COMMANDS = {
    "demo": "captioning.commands.serve:demo",
    "caption": "captioning.commands.caption_photos:caption",
    "serve": "captioning.commands.serve:serve_captions",
    "finetune": "captioning.commands.train:finetune_model",
    "train": "captioning.commands.train:train_model",
    "evaluate": "captioning.commands.evaluate:evaluate",
    "calibrate": "captioning.commands.evaluate:calibrate",
    "score": "captioning.commands.score:score",
    "compare": "captioning.commands.score:compare",
    "review": "captioning.commands.review_captions:review",
    "ground": "captioning.commands.evaluate:ground_model",
    "features": "captioning.commands.train:encode_photos",
    "check": "captioning.commands.train:check_data",
    "shapes": "captioning.commands.train:shapes",
    "models": "captioning.commands.share:models",
    "export": "captioning.commands.share:export_model",
    "push": "captioning.commands.share:push_model",
}
"""The function of each command, imported when the command is asked for."""

ENDLESS = ("demo", "serve")
"""Commands that run until they are stopped."""

EXTRAS = {"fastapi": "serve", "granian": "serve", "ray": "ray"}
"""The extra with each library that a command cannot do without."""

HELP_EXAMPLES = """\
Every command takes --import MODULE: a module of yours to import first; repeatable.

Examples:
  captioning caption photo.jpg --overlay maps
  captioning finetune my-photos
  captioning evaluate --data coco --split test

Start with: captioning demo
"""


def app(imports_all: bool = False) -> App:
    """Build the parser of the command line.

    Args:
        imports_all: import the functions of all commands, whose docstrings the help shows.
    """
    parser = App(
        name="captioning",
        version=f"captioning {__version__}",
        help="Says what is in a photo, and shows where it looked for every word.",
        help_epilogue=HELP_EXAMPLES,
        help_format="plaintext",
        default_parameter=Parameter(
            negative=(),
            allow_repeating=True,  # the last one counts
            show_default=lambda value: value or None,
        ),
    )
    for order, (name, function) in enumerate(COMMANDS.items()):
        parser.command(
            function, name=name, sort_key=order, help_format="markdown", help_epilogue=""
        )
        if imports_all:
            parser[name]  # looking a command up imports its function

    @parser.command(name="--print-completion", help_epilogue="")
    def print_completion(shell: Literal["bash", "zsh", "fish"]) -> None:
        """Print a script that completes commands and options in this shell."""
        print(parser.generate_completion(shell=shell))

    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    The code is 1 for bad input, 2 for bad options, 130 for an interrupt. These print one line; any
    other exception is a bug.

    Args:
        arguments: the command and its options; defaults to those of the process.
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    name = ""
    try:
        argv = import_modules(argv)
        LINE_HANDLER.printed.clear()
        logging.getLogger("captioning").addHandler(LINE_HANDLER)  # once, however often
        logging.getLogger("captioning").setLevel(logging.INFO)
        warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata of readable photos
        name = argv[0] if argv else ""
        parser = app(imports_all=name not in COMMANDS)
        command, bound, _ = parser.parse_args(argv, print_error=False, exit_on_error=False)
        if name not in ENDLESS:
            keep_freed_memory()
        result = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _failed(removal_message(f"{name}: {error}") or f"{error} See captioning --help.", 2)
    except InputError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        return _failed(f"this needs {error.name}; run pip install 'captioning[{extra}]'")
    except KeyboardInterrupt as interrupt:
        return _failed(str(interrupt) or "interrupted", 130)
    except BrokenPipeError:
        discard_output()
        return 1
    except (RuntimeError, MemoryError, ConnectionResetError) as error:
        line = _failure_of_the_system(error)
        if line is None:
            raise
        return _failed(line)
    except OSError as error:
        parts = (error.filename2 or error.filename, error.strerror or error)
        return _failed(": ".join(str(part) for part in parts if part))


def keep_freed_memory() -> None:
    """Keep freed memory in this process, if its allocator is glibc's.

    By default glibc returns blocks of some megabytes to the system, which clears every page again:
    up to 5 % of a training step on a CPU. Not for servers, which should return memory.
    """
    import ctypes

    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: never
        glibc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: its maximum


def discard_output() -> None:
    """Print to nowhere from now on, since the reader of our output, such as head, has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(line: str, code: int = 1) -> int:
    print(f"captioning: {printable(line)}", file=sys.stderr, flush=True)
    return code


def _failure_of_the_system(error: Exception) -> str | None:
    """Say what to do about full memory, dead processes or a mixed installation; None for others."""
    text = str(error)
    if "operator torchvision::" in text or "PyTorch and torchvision were compiled" in text:
        from importlib.metadata import version

        return (
            f"torch {version('torch')} and torchvision {version('torchvision')} do not belong "
            "together; run pip install --force-reinstall -c constraints.txt torch torchvision"
        )
    if is_memory_full(error):
        owner = "the GPU's" if type(error).__name__ == "OutOfMemoryError" else "the"
        return f"{owner} memory is full; give a smaller --batch-size (train: --data.batch_size)"
    if "shared memory" in text or "Bus error" in text or "No space left on device" in text:
        return "shared memory (/dev/shm) is full; enlarge it, or give --data.workers 0"
    is_reset = isinstance(error, ConnectionResetError)  # by a worker that sent a batch
    if "DataLoader worker" in text and sys.platform != "win32":
        # PyTorch raises this error at every later signal, too, also while the line is printed.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if "DataLoader worker" in text or "process pool" in text or is_reset:
        return "a worker process was killed; give more memory, or fewer workers or processes"
    if "by peer" in text:  # torch.distributed: connection closed, connection reset
        return "another process of this training has died; see what it printed"
    return None


class _LineHandler(logging.Handler):
    """Prints what the package logs, such as classes without a kernel, once per run."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        from captioning.progress_bar import is_first_process, say

        line = printable(record.getMessage())
        if is_first_process() and line not in self.printed:
            say(f"captioning: {line}")
        self.printed.add(line)


LINE_HANDLER = _LineHandler()
