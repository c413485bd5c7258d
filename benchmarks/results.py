"""A run of the benchmark as a JSON file, and a page whose tables are those of such files."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine
from benchmarks.measure import Measured
from benchmarks.rows import Row
from benchmarks.tables import tables
from captioning.errors import InputError
from captioning.files import write_json, written_whole
from captioning.untrusted import read_json, text_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
"""One file per machine, named for it."""

BEGIN, END = "<!-- tables of benchmarks/results -->", "<!-- end of the tables -->"
"""Lines of a page between which the tables stand."""

NONE = "No run of this version has been recorded yet."


@dataclass(frozen=True)
class Run:
    """What was measured, of what, on what.

    Attributes:
        machine: with its measured rates, and the date.
        load: processes that wanted to run before the measurement, the mean of a minute; none where
            the system does not tell.
        commit: that was measured; none where there is no git.
        is_changed: whether files differed from that commit.
        command: that measured it.
        rows: the figures.
    """

    machine: Machine
    load: float | None
    commit: str | None
    is_changed: bool
    command: str
    rows: Sequence[Row]


def write_run(path: Path, run: Run) -> None:
    """Write a run as JSON."""
    write_json(path, asdict(run))


def read_run(path: Path) -> Run:
    """A run that `write_run` has written.

    Raises:
        InputError: the file has none.
    """
    try:
        values: dict[str, Any] = read_json(path)
        rows = [
            Row(**(row | {"figure": row["figure"] and Measured(**row["figure"])}))
            for row in values["rows"]
        ]
        return Run(**(values | {"machine": Machine(**values["machine"]), "rows": rows}))
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: no run of the benchmark; write it by --json ({error})") from None


def load_of_machine() -> float | None:
    """The system's load average of the last minute; none where it does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def commit() -> tuple[str | None, bool]:
    """The commit that is checked out here, and whether files differ from it."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return name, bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return None, False


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def section(run: Run) -> str:
    """A run as a section of a page."""
    machine = run.machine
    state = " with changes" if run.is_changed else ""
    load = "" if run.load is None else f", load before it {run.load:.1f}"
    return "\n\n".join(
        [
            f"### {title(machine)}",
            f"Commit {run.commit or 'unknown'}{state}, {machine.date}, PyTorch {machine.torch}, "
            f"Python {machine.python}{load}.",
            rates(machine),
            f"```bash\n{run.command}\n```",
            tables(run.rows),
        ]
    )


def title(machine: Machine) -> str:
    """The machine and how much of it was used."""
    used = [machine.processor, machine.instructions]
    used.append("1 thread" if machine.threads == 1 else f"{machine.threads} threads")
    return ", ".join(filter(None, used))


def rates(machine: Machine) -> str:
    """The machine's measured rates, of which arithmetic is a share."""
    told = []
    for precision, ways in machine.products.items():
        each = ", ".join(f"{rate / 1e9:,.0f} by {way}" for way, rate in ways.items())
        told.append(f"in {precision} {each or 'emulated here, so not measured'}")
    return f"Products, GFLOP/s: {'; '.join(told)}. Copies: {machine.copy / 1e9:,.1f} GB/s."


def sections(folder: Path = RESULTS) -> str:
    """All runs of a folder, by the names of their files."""
    runs = [read_run(path) for path in sorted(folder.glob("*.json"))]
    return "\n\n".join(map(section, runs)) or NONE


def with_tables(page: str, folder: Path = RESULTS) -> str:
    """A page with the tables of a folder between its two markers.

    Raises:
        InputError: the page lacks a marker.
    """
    before, begin, rest = page.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end:
        raise InputError(f"the page has no lines {BEGIN!r} and {END!r} to write tables between")
    return f"{before}{begin}\n{sections(folder)}\n\n{end}{after}"


def write_tables(path: Path) -> None:
    """Write the tables of all runs into a page.

    Raises:
        InputError: the page cannot be read or written, or lacks a marker.
    """
    page = with_tables(text_of(path))
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
