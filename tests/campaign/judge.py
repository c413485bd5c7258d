"""The one judge of all cases: how a command may end, and in what state it may leave its files."""

import csv
import io
import json
import os
import re
import signal
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

MOST_MEMORY = 2 * 10**9
"""Bytes that a command may hold at its peak, all that is imported included."""

MOST_PROCESSES = 80
"""Processes that a command may start: a few, and the 64 that `data.workers` may ask for."""

MOST_COMPLAINTS = 10**6
"""Bytes that a command may write to stderr."""

MARKER = "executed"
"""The file in a case's folder that hostile inputs try to make by executing something."""

ANSWERS = {0: "done", 1: "bad input", 2: "bad options"} | {
    128 + number: "interrupted" for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
}

FAULTS = ("traceback", "hang", "memory", "execution", "half-written", "crash", "other")

_ASKED_TOO_MUCH = re.compile(r"MemoryError|[Cc]annot allocate memory|can't allocate memory")
_RAW = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        code: its exit code; the negative number of a signal that ended it.
        out: its stdout.
        err: its stderr.
        seconds: how long it took.
        memory: bytes at its peak, of the largest of its processes.
        processes: most of them at a time.
        stopped: why the campaign ended it: "limit" (of time), "crowd" (of processes), "kill"
            (planned), or nothing.
    """

    code: int
    out: str
    err: str
    seconds: float
    memory: int
    processes: int
    stopped: str = ""

    @property
    def answer(self) -> str:
        """How it ended, in a word or two."""
        return "killed" if self.stopped == "kill" else ANSWERS.get(self.code, "none")


def faults(outcome: Outcome, folder: Path, inputs: int = 1, silent: bool = False) -> list[str]:
    """What is wrong with how a command ended, each begun by one of `FAULTS`; nothing is none.

    Args:
        outcome: of the command.
        folder: of the case.
        inputs: how many inputs it was given that may each be refused by a line.
        silent: whether it may say on stdout alone why it ends with 1.
    """
    found = []
    if outcome.memory > MOST_MEMORY:
        found.append(f"memory: {outcome.memory / 1e9:.1f} GB")
    if outcome.stopped == "crowd":
        found.append(f"memory: {outcome.processes} processes")
    elif outcome.stopped == "limit":
        found.append(f"hang: ended after {outcome.seconds:.0f} s")
    elif outcome.stopped != "kill":
        found += _of_ending(outcome, inputs, silent)
    if os.path.lexists(folder / MARKER):  # a link to nothing, too
        found.append("execution: the input has executed something")
    return found


def _of_ending(outcome: Outcome, inputs: int, silent: bool) -> list[str]:
    last = (outcome.err.strip().splitlines() or [""])[-1][:300]
    if outcome.code < 0:
        name = signal.Signals(-outcome.code).name
        return [f"crash: {name}: {last}"]
    if "Traceback (most recent call last)" in outcome.err:
        kind = "memory" if _ASKED_TOO_MUCH.search(outcome.err) else "traceback"
        return [f"{kind}: {last}"]
    if outcome.code not in ANSWERS:
        return [f"other: exit code {outcome.code}: {last}"]
    found = []
    if len(outcome.err) > MOST_COMPLAINTS:
        found.append(f"other: {len(outcome.err)} bytes of complaints")
    if raw := _RAW.search(outcome.err):
        found.append(f"other: {raw[0]!r} raw on stderr")
    lines = [line for line in outcome.err.splitlines() if line.startswith("captioning: ")]
    if any(not line.removeprefix("captioning: ").strip() for line in lines):
        found.append("other: a complaint that says nothing")
    if outcome.code != 0:
        if not lines and not (silent and outcome.out):
            found.append(f"other: exit code {outcome.code} and no line that says why: {last}")
        if len(lines) > inputs:
            found.append(f"other: {len(lines)} lines for {inputs} inputs")
    return found


def no_json(lines: str) -> list[str]:
    """A fault for the first line that is no JSON, which has no NaN."""
    for line in lines.splitlines():
        try:
            json.loads(line, parse_constant=_refuse)
        except ValueError as error:
            return [f"other: no JSON on stdout: {error}"]
    return []


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


def half_written(folder: Path, apart: str = "given", killed: bool = False) -> list[str]:
    """A fault for every file below `folder` that is not whole.

    Args:
        folder: where a command wrote.
        apart: name of the folder in it that holds the inputs, which need not be whole.
        killed: whether it was killed, so that it may leave temporary files, whose names begin with
            a dot.
    """
    found = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.relative_to(folder).parts[0] == apart:
            continue
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if hidden and not killed:
            found.append(f"half-written: {file.relative_to(folder)}: left behind")
        elif not hidden and (reason := broken(file)):
            found.append(f"half-written: {file.relative_to(folder)}: {reason}")
    return found


def broken(file: Path) -> str:
    """Why a file is not whole, by its kind; nothing where it is."""
    check = CHECKS.get(file.suffix)
    if check is None:
        return ""
    try:
        return "" if check(file.read_bytes()) else "cut off"
    except Exception as error:  # whatever a reader of half a file raises
        return f"{type(error).__name__}: {error}"[:200]


def _of_archive(content: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.testzip() is None


def _of_picture(content: bytes) -> bool:
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()
    return True


def _of_json_lines(content: bytes) -> bool:
    return (not content or content.endswith(b"\n")) and _read(map(json.loads, content.splitlines()))


def _of_rows(content: bytes) -> bool:
    rows = list(csv.reader(io.StringIO(content.decode())))
    return not rows or (content.endswith(b"\n") and len({len(row) for row in rows}) == 1)


def _of_array(content: bytes) -> bool:
    np.load(io.BytesIO(content), allow_pickle=False)
    return True


def _read(values: Iterable[object]) -> bool:
    return all(value is not None for value in values)


CHECKS: dict[str, Callable[[bytes], bool]] = {
    ".ckpt": _of_archive,
    ".csv": _of_rows,
    ".html": lambda content: content.rstrip().endswith(b"</html>"),
    ".jpg": _of_picture,
    ".json": lambda content: _read([json.loads(content)]),
    ".jsonl": _of_json_lines,
    ".npy": _of_array,
    ".npz": _of_archive,
    ".png": _of_picture,
    ".yaml": lambda content: _read([yaml.safe_load(content)]),
}
"""Whether a file of this suffix is whole; one that is not may raise anything."""
