"""Commands that are killed at random moments, and then go on to the end.

Half of the kills come after a random time, half when a random one of the files is opened, renamed
or removed, which is where files are most easily lost.
"""

import csv
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.world import World

OF_FILES = frozenset(("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"))
"""Python's audit events at which a command is killed."""

TIMES = 2
"""A case kills a command at most so many times."""

Command = Callable[[World, Path], list[str]]
"""Arguments that write into a folder."""

Same = Callable[[Path, Path], object]
"""Compares two folders that a command wrote; raises where they differ."""


def _train(world: World, folder: Path) -> list[str]:
    options = ["--trainer.default_root_dir", str(folder), "--trainer.log_every_n_steps", "1"]
    return ["train", "--config", str(_data(world) / "train.yaml"), *options, "--resume"]


def _bulk(world: World, folder: Path) -> list[str]:
    listed = ["--list", str(_data(world) / "list"), "--model", str(world.model)]
    return ["caption", *listed, "--batch-size", "2", "--shard-size", "2", "--out", str(folder)]


def _features(world: World, folder: Path) -> list[str]:
    config = str(_data(world) / "frozen.yaml")
    return ["features", "--config", config, "--data.features", str(folder)]


def _data(world: World) -> Path:
    return world.folder / "kills"


def _whole(world: World, command: Command) -> Path:
    """What the uninterrupted command wrote; as deep as a case's, for paths from there."""
    return world.folder / "cases" / f"whole{command.__name__}" / "out"


def _prepare(command: Command, world: World) -> None:
    """Draw more scenes, and run the command without a kill."""
    from captioning.commands import main
    from captioning.shapes import write_shapes

    data = _data(world)
    if not data.exists():
        write_shapes(data / "shapes", train=24, val=6, test=1, pixels=48, progress=False)
        photos = sorted((data / "shapes").rglob("*.jpg"))
        (data / "list").write_text("".join(f"{photo}\n" for photo in photos))
        settings = world.settings
        settings["data"]["reader"]["init_args"]["root"] = str(data / "shapes")
        settings["data"]["batch_size"] = 4
        settings["trainer"].update(max_epochs=4, check_val_every_n_epoch=2)
        settings["save_every"] = 0.001  # minutes, so that epochs are gone on with, too
        (data / "train.yaml").write_text(yaml.safe_dump(settings))
        settings["model"]["encoder"]["init_args"]["trainable_stages"] = 0
        (data / "frozen.yaml").write_text(yaml.safe_dump(settings))
    whole = _whole(world, command)
    events: list[str] = []
    sys.addaudithook(lambda event, at: _at_event(event, at, whole, lambda: events.append(event)))
    begun = time.monotonic()
    if main(command(world, whole)) != 0:
        raise RuntimeError("the uninterrupted run failed")
    length = {"seconds": time.monotonic() - begun, "events": len(events)}
    whole.with_suffix(".length").write_text(json.dumps(length))


def _at_event(event: str, at: Any, folder: Path, do: Callable[[], object]) -> None:
    """Do something where an audit event is of a file in the folder that is written."""
    if event not in OF_FILES or not str(at[0]).startswith(str(folder)):
        return
    if event == "open" and not (isinstance(at[2], int) and at[2] & (os.O_WRONLY | os.O_RDWR)):
        return
    do()


def _killed_at(count: int, folder: Path) -> None:
    """Let this process be killed at the event of this number."""
    left = [count]

    def happens() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(lambda event, at: _at_event(event, at, folder, happens))


def _case(
    command: Command, same: Same, world: World, number: int, random: Random, folder: Path
) -> Case:
    whole = _whole(world, command)
    length = _length(whole.with_suffix(".length"))
    calls, told = [], []
    arguments = command(world, folder / "out")
    for _ in range(random.randint(1, TIMES)):
        if random.random() < 0.5:
            event = random.randrange(max(1, length["events"]))
            before = partial(_killed_at, event, folder / "out")
            calls.append(Call(arguments, before=before))
            told.append(f"at file event {event}")
        else:
            moment = random.uniform(0, 1.1 * length["seconds"])
            calls.append(Call(arguments, kill_after=moment))
            told.append(f"after {moment:.2f} s")
    return Case(
        f"{arguments[0]}, killed {', then '.join(told)}",
        _steps(calls, arguments, folder, lambda: same(whole, folder / "out")),
    )


def _steps(
    calls: list[Call], arguments: list[str], folder: Path, compare: Callable[[], object]
) -> Steps:
    found = []
    for call in calls:
        outcome = yield call
        if outcome.code != -signal.SIGKILL:
            found += judge.faults(outcome, folder)
        # A table grows by rows; what is read of it leaves out a row that is cut short.
        found += [fault for fault in judge.half_written(folder, killed=True) if ".csv" not in fault]
    outcome = yield Call(arguments)
    found += judge.faults(outcome, folder)
    found += judge.half_written(folder, killed=True)
    if outcome.code == 0:

        def compared() -> int:
            compare()
            return 0

        difference = yield Call(instead=compared)
        if difference.code != 0:
            last = difference.err.strip().splitlines()[-1]
            found.append(f"other: differs from the uninterrupted run: {last[:300]}")
    else:
        found.append("other: does not go on")
    return found


@cache
def _length(path: Path) -> dict[str, Any]:
    length: dict[str, Any] = json.loads(path.read_text())
    return length


def _same_training(whole: Path, parts: Path) -> None:
    import torch

    for name in ("last.ckpt", "best.ckpt"):
        ours, theirs = (torch.load(run / name, weights_only=True) for run in (whole, parts))
        for key in ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers"):
            torch.testing.assert_close(
                ours[key], theirs[key], rtol=0, atol=0, equal_nan=True, msg=f"{name}: {key}"
            )
    scores, others = _logged(whole), _logged(parts)
    if scores != others:
        raise AssertionError(f"CSVs: {set(scores) ^ set(others)}"[:300])


def _logged(run: Path) -> list[tuple[int, str, str]]:
    """Step, name and value of everything in the run's tables."""
    return sorted(
        (int(row["step"]), name, value)
        for table in run.glob("csv*/metrics.csv")
        for row in csv.DictReader(table.read_text().splitlines())
        for name, value in row.items()
        if value and name not in ("step", "epoch")
    )


def _same_files(whole: Path, parts: Path) -> None:
    """What the killed processes were writing, and their locks and journals, may stay behind."""
    for file in whole.iterdir():
        if file.read_bytes() != (parts / file.name).read_bytes():
            raise AssertionError(file.name)
    more = {path.name for path in parts.glob("captions-*")} - {
        path.name for path in whole.iterdir()
    }
    if more:
        raise AssertionError(f"too many: {sorted(more)}")


def _kind(name: str, whole: int, tenth: int, command: Command, same: Same) -> Kind:
    return Kind(name, whole, tenth, partial(_case, command, same), partial(_prepare, command))


KILLS = [
    _kind("kills-of-train", 30, 3, _train, _same_training),
    _kind("kills-of-bulk", 20, 2, _bulk, _same_files),
    _kind("kills-of-features", 10, 1, _features, _same_files),
]
