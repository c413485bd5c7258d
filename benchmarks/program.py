"""The command: options, rows, table and JSON."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.agreement import DisagreementError, check_exactly
from benchmarks.encoding import encoding_rows
from benchmarks.end_to_end import end_to_end_rows
from benchmarks.machine import Machine, measured_machine
from benchmarks.memory import memory_rows
from benchmarks.reading import reading_rows
from benchmarks.scoring import scoring_rows
from benchmarks.searching import beam_rows, greedy_rows
from benchmarks.setting import Setting
from benchmarks.sizes import FULL, QUICK
from benchmarks.snapshots import found_photos, written_photos
from benchmarks.start import start_rows
from benchmarks.table import Row, markdown
from benchmarks.training import training_rows
from captioning.captioner.device import usable_device
from captioning.cli.options import positive
from captioning.errors import InputError, UsageError
from captioning.files import write_json

ROWS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "training": training_rows,
    "memory": memory_rows,
    "greedy": greedy_rows,
    "beam": beam_rows,
    "end-to-end": end_to_end_rows,
    "encoding": encoding_rows,
    "reading": reading_rows,
    "report": scoring_rows,
    "start": start_rows,
}

PHOTOS, CAPTIONS = 64, 5000
QUICK_PHOTOS, QUICK_CAPTIONS = 4, 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; returns the exit code.

    Args:
        arguments: options; those of the process if none.
    """
    options = _parser().parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _run(options, Path(folder))
    except (InputError, DisagreementError) as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _run(options: argparse.Namespace, folder: Path) -> None:
    device = torch.device(usable_device(options.device))
    if options.threads:
        torch.set_num_threads(options.threads)
    check_exactly(device)
    machine = measured_machine(device, 128, 2**20) if options.quick else measured_machine(device)
    _tell(machine)
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
    for name in options.rows:
        print(f"measuring {name} ...", file=sys.stderr)
        rows += ROWS[name](setting)
    print(markdown(rows))
    if options.json:
        write_json(
            options.json, {"machine": asdict(machine), "rows": [asdict(row) for row in rows]}
        )


def _tell(machine: Machine) -> None:
    """Print what the shares of the table are shares of."""
    print(f"{machine.processor}, {machine.threads} threads, ", end="")
    print(f"PyTorch {machine.torch}, Python {machine.python}, {machine.date}")
    for precision, ways in machine.products.items():
        told = ", ".join(f"{way} {rate / 1e9:,.0f} GFLOP/s" for way, rate in ways.items())
        print(f"products in {precision}: {told or 'emulated here, so not measured'}")
    print(f"copies: {machine.copy / 1e9:,.1f} GB/s\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/benchmark.py",
        description="Measures this package beside a textbook implementation of the same model. "
        "Medians; the spread is from the least to the most of the rounds. The ratio is how many "
        "times better than the textbook; arithmetic and bytes are the shares of the machine's "
        "measured rates that what the model needs at the least reaches.",
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works")
    return parser


def _rows(text: str) -> list[str]:
    """Names of rows, as argparse reads them."""
    names = text.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row {unknown[0]!r}; choose from {', '.join(ROWS)}")
    return names
