"""`python -m tests.campaign`: runs cases, tells of those that fail, and writes the table."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that the options name; 1 where any of them fails."""
    options = _parser().parse_args(arguments)
    os.environ.update(ONE_THREAD, WANDB_MODE="disabled")  # before anything reads them
    from tests.campaign import forks
    from tests.campaign.cases import answers, done_in_child
    from tests.campaign.kinds import KINDS
    from tests.campaign.table import table, written_into
    from tests.campaign.world import World

    chosen = KINDS if options.kind is None else [k for k in KINDS if k.name in options.kind]
    forks.warm_up()
    world = World(Path(tempfile.mkdtemp(prefix="campaign-")))
    os.environ.update(TORCH_HOME=str(world.folder), HOME=str(world.folder))
    begun = time.monotonic()
    found = []
    try:
        (world.folder / "making").mkdir()
        done_in_child(world.make, world.folder / "making")
        for kind in chosen:
            count = options.count or (kind.tenth if options.tenth else kind.whole)
            if kind.prepare is not None:
                done_in_child(partial(kind.prepare, world), world.folder / "making")
            numbers = range(count)
            if options.only:  # -1 stands for what is around the cases, which is always looked at
                numbers = [number for number in options.only if number >= 0]
            for answer in answers(
                kind, world, options.seed, numbers, options.jobs, options.seconds, options.keep
            ):
                found.append(answer)
                if answer.faults or options.only:
                    print(answer, answer.complaint if options.only else "", sep="\n", flush=True)
    finally:
        if options.keep:
            print(f"kept: {world.folder}", file=sys.stderr)
        else:
            shutil.rmtree(world.folder, ignore_errors=True)
    print(table(found), f"\n{time.monotonic() - begun:.0f} seconds")
    if options.report:
        Path(options.report).write_text(json.dumps(list(map(asdict, found)), indent=1))
    if options.write:
        written_into(Path(options.write), table(found))
    return 1 if any(answer.faults for answer in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__)
    add = parser.add_argument
    add("--kind", action="append", help="only cases of this kind; may be given again")
    add("--count", type=int, help="cases of each kind (default: a whole campaign)")
    add("--tenth", action="store_true", help="what `scripts/test --all` runs")
    add("--only", type=int, action="append", metavar="N", help="only the case of this number")
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="cases at a time")
    add("--seconds", type=float, default=60, help="after which a command hangs (default: 60)")
    add("--report", metavar="FILE", help="write what became of every case, JSON")
    add("--write", metavar="FILE", help="put the table into this page, docs/reliability.md")
    add("--keep", action="store_true", help="leave the cases' folders")
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # at once: libraries complain of objects that the fork server has frozen
