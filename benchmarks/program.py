"""The command: processes that take turns, a table, and the figures as JSON."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from benchmarks.sizes import SIZES
from benchmarks.tasks import BEFORE, OURS, SHIPPED, TASKS, WITHOUT_SIZE, Job
from benchmarks.worker import serve

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "benchmark.py"


@dataclass(frozen=True)
class Row:
    """One task at one size.

    Attributes:
        task: a name of `TASKS`.
        size: a name of `SIZES`; empty for commands.
        seconds: of every round, by contender.
        megabytes: at the peak of the first run beyond what there was before it, by contender.
    """

    task: str
    size: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    megabytes: dict[str, float | None] = field(default_factory=dict)

    def times(self, other: str) -> float:
        """How many times faster ours is than another: the median ratio of seconds in a round."""
        rounds = zip(self.seconds[other], self.seconds[OURS], strict=True)
        return statistics.median(its / mine for its, mine in rounds)


class Worker:
    """A process of one contender, which waits while another has its turn."""

    def __init__(self, job: Job) -> None:
        self.job = job
        command = [sys.executable, str(SCRIPT), "--worker", job.checkout, json.dumps(asdict(job))]
        environment = os.environ | {"OMP_NUM_THREADS": str(job.threads)}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.megabytes: float | None = self._answer()

    def seconds(self) -> float:
        """The seconds of one run."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"benchmark: {self.job.task} of {self.job.contender} failed; see above")
        return json.loads(line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["--worker"]:
        serve(Job(**json.loads(given[2])))
        return 0
    options = _parser().parse_args(given)
    rows = []
    for name in options.tasks:
        for size in [""] if name in WITHOUT_SIZE else options.sizes:
            print(f"measuring {name} {size} ...", file=sys.stderr)
            rows.append(measured(name, size, options))
    print(table(rows))
    if options.json:
        measurement = {"machine": machine(options), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(measurement, indent=1) + "\n")
    return 0


def measured(name: str, size: str, options: argparse.Namespace) -> Row:
    """All contenders of a task in turns, after a first run that does not count."""
    checkouts = {OURS: ROOT, **({BEFORE: options.against.resolve()} if options.against else {})}
    rivals = {} if options.no_rivals else dict.fromkeys(TASKS[name], ROOT)
    row = Row(name, size)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {}
        for contender, checkout in (checkouts | rivals).items():
            given = str(options.photos.resolve()) if options.photos and name in SHIPPED else folder
            job = Job(
                *(name, size, contender, str(checkout), given),
                *(options.device, options.precision, options.threads, options.limit),
            )
            workers[contender] = stack.enter_context(Worker(job))
            row.megabytes[contender] = workers[contender].megabytes
        for _, (contender, worker) in product(range(options.rounds), workers.items()):
            row.seconds.setdefault(contender, []).append(worker.seconds())
    return row


def table(rows: Sequence[Row]) -> str:
    """Milliseconds, ratios and memory in Markdown, a line for each task and size."""
    contenders = list(dict.fromkeys(name for row in rows for name in row.seconds))
    others = [name for name in contenders if name != OURS]
    heads = ["task", "size", *(f"{name}, ms" for name in contenders)]
    heads += [f"times {name}" for name in others]
    heads += [f"{name}, MB" for name in contenders]
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in rows:
        times = [f"{row.times(name):.2f}" if name in row.seconds else "" for name in others]
        lines.append(
            [
                *(row.task, row.size),
                *(_spread(row.seconds.get(name, [])) for name in contenders),
                *times,
                *(_megabytes(row.megabytes, name) for name in contenders),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    median, *ends = (1000 * f(seconds) for f in (statistics.median, min, max))
    return f"{median:,.0f} ({ends[0]:,.0f}-{ends[1]:,.0f})"


def _megabytes(found: Mapping[str, float | None], name: str) -> str:
    value = found.get(name)
    return "" if value is None else f"{value:,.0f}"


def machine(options: argparse.Namespace) -> dict[str, str]:
    """What measured it, and of which commit."""
    git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    described = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else ""
    return {
        "processor": gpu or platform.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(options.threads),
        "precision": options.precision,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": described.stdout.strip(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/benchmark.py",
        description="Times this package against a textbook implementation of the same model, "
        "against ImageCaptioning.pytorch's way of computing it (the peer), and against another "
        "checkout. Contenders run in processes of their own and take turns. Prints medians of the "
        "rounds in milliseconds with their range, the median ratios, and the memory that a first "
        "run adds.",
    )
    add = parser.add_argument
    add("--against", type=Path, metavar="CHECKOUT", help="time this checkout's package too")
    add("--no-rivals", action="store_true", help="leave out peer, textbook and empty processes")
    add("--tasks", type=_names(TASKS), default=list(TASKS), metavar="NAME,...", help=str([*TASKS]))
    add(
        *("--sizes",),
        **{"type": _names(SIZES), "default": ["small", "large"], "metavar": "NAME,..."},
        help=f"from {', '.join(SIZES)} (default: small,large)",
    )
    add("--rounds", type=int, default=5, help="of each contender (default: 5)")
    add("--threads", type=int, default=torch.get_num_threads(), help="of PyTorch on the CPU")
    add("--photos", type=Path, metavar="DIR", help=f"JPEG files for {', '.join(SHIPPED)}")
    add("--limit", type=int, default=500, metavar="N", help="use the first N photos")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 by autocast")
    add("--json", type=Path, metavar="FILE", help="write the seconds of every round there")
    return parser


def _names(known: Mapping[str, object]) -> Any:
    """Reads names separated by commas."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if not known.keys() >= set(found):
            raise argparse.ArgumentTypeError(f"give some of {', '.join(known)}")
        return found

    return names
