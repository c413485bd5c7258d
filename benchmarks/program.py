"""The command: options, rows, tables and JSON."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.agreement import DisagreementError, check_exactly
from benchmarks.encoding import encoding_rows
from benchmarks.end_to_end import end_to_end_rows
from benchmarks.machine import measured_machine
from benchmarks.memory import memory_rows
from benchmarks.reading import reading_rows
from benchmarks.results import Run, commit, load_of_machine, rates, title, write_run, write_tables
from benchmarks.rows import Row
from benchmarks.scoring import scoring_rows
from benchmarks.searching import beam_rows, greedy_rows
from benchmarks.setting import Setting
from benchmarks.sizes import FULL, QUICK
from benchmarks.snapshots import found_photos, written_photos
from benchmarks.start import start_rows
from benchmarks.tables import tables
from benchmarks.training import training_rows
from benchmarks.transformers import transformer_beam_rows, transformer_step_rows
from captioning.captioner.device import usable_device
from captioning.cli.options import positive
from captioning.errors import InputError, UsageError

ROWS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "training": training_rows,
    "memory": memory_rows,
    "greedy": greedy_rows,
    "beam": beam_rows,
    "transformer-beam": transformer_beam_rows,
    "transformer-step": transformer_step_rows,
    "end-to-end": end_to_end_rows,
    "encoding": encoding_rows,
    "reading": reading_rows,
    "report": scoring_rows,
    "start": start_rows,
}

RESTRICTIONS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
"""Variables that keep PyTorch and oneDNN from instructions that the processor has."""

PHOTOS, CAPTIONS = 64, 5000
QUICK_PHOTOS, QUICK_CAPTIONS = 4, 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON; or write a page's tables. Returns the exit code.

    Args:
        arguments: options; those of the process if none.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.tables:
            write_tables(options.tables)
            return 0
        with tempfile.TemporaryDirectory() as folder:
            _run(options, Path(folder))
    except (InputError, DisagreementError) as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _run(options: argparse.Namespace, folder: Path) -> None:
    load, (name, is_changed) = load_of_machine(), commit()
    device = torch.device(usable_device(options.device))
    if options.threads:
        torch.set_num_threads(options.threads)
    check_exactly(device)
    machine = measured_machine(device, 128, 2**20) if options.quick else measured_machine(device)
    print(f"{title(machine)}, PyTorch {machine.torch}, Python {machine.python}, {machine.date}")
    print(f"{rates(machine)}\n", flush=True)
    count = QUICK_PHOTOS if options.quick else PHOTOS
    setting = Setting(
        sizes=QUICK if options.quick else FULL,
        device=device,
        rounds=options.rounds,
        machine=machine,
        photos=found_photos(options.photos, count)
        if options.photos
        else written_photos(folder, count),
        captions=QUICK_CAPTIONS if options.quick else CAPTIONS,
    )
    rows: list[Row] = []
    for row in options.rows:
        print(f"measuring {row} ...", file=sys.stderr)
        rows += ROWS[row](setting)
    print(tables(rows))
    if options.json:
        write_run(options.json, Run(machine, load, name, is_changed, _command(options), rows))


def _command(options: argparse.Namespace) -> str:
    """The command that measures the same again, without the paths of this machine."""
    words = [f"{name}={os.environ[name]}" for name in RESTRICTIONS if name in os.environ]
    words.append("scripts/benchmark.py")
    words += ["--device", options.device] if options.device != "cpu" else []
    words += ["--threads", str(options.threads)] if options.threads else []
    words += ["--rounds", str(options.rounds)]
    words += ["--photos", "PHOTOS"] if options.photos else []
    words += ["--quick"] if options.quick else []
    return " ".join([*words, "--rows", ",".join(options.rows)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/benchmark.py",
        description="Measures this package beside a textbook implementation of the same model and "
        "one as the best research repositories write it, the peer. Medians of the rounds. Times is "
        "how many times better ours is than another in the same precision; arithmetic is the "
        "share of the machine's measured rate that what the model needs at the least reaches.",
    )
    parser.add_argument(
        "--rows",
        type=_rows,
        default=list(ROWS),
        metavar="NAME,...",
        help=f"what to measure (default: {','.join(ROWS)})",
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--threads", type=positive, help="threads of PyTorch on the CPU")
    parser.add_argument("--rounds", type=positive, default=5, help="of each row (default: 5)")
    parser.add_argument("--photos", type=Path, metavar="FOLDER", help="JPEG files to read")
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    written.add_argument(
        "--tables",
        type=Path,
        metavar="PAGE",
        help="measure nothing; write the tables of benchmarks/results/*.json into this page",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works")
    return parser


def _rows(text: str) -> list[str]:
    """Names of rows, as argparse reads them."""
    names = text.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row {unknown[0]!r}; choose from {', '.join(ROWS)}")
    return names
