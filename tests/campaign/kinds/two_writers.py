"""The same command twice at once, in one folder.

One of them does it; the other does it too, or is refused in a line. Either way the files are those
of a command that ran alone.
"""

import time
from pathlib import Path
from random import Random

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Child
from tests.campaign.kinds import writers
from tests.campaign.world import World

SAME = (".csv", ".gif", ".jsonl", ".npy", ".npz", ".png", ".safetensors", ".txt")
"""Files whose content is the same in every run."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    calls = writers.calls(world)
    name = list(calls)[number % len(calls)]
    delay = random.uniform(0, writers.seconds(world, name)) * random.choice((0, 0.2, 1))
    return Case(f"{name}, twice, {delay:.2f} s apart", _steps(world, name, delay, folder))


def _steps(world: World, name: str, delay: float, folder: Path) -> Steps:
    call = writers.calls(world)[name]
    other = Child(call, folder, name="second")
    time.sleep(delay)
    first = yield call
    while (second := other.outcome()) is None:
        time.sleep(0.01)
    found = [*judge.faults(first, folder), *judge.faults(second, folder)]
    found += judge.half_written(folder)
    if first.code and second.code:
        found.append(f"other: neither is done: {first.err[-200:]}; {second.err[-200:]}")
    found += writers.missing(world, name, folder / writers.OUT)
    alone = writers.whole(world, name)
    for file in alone.rglob("*"):
        copy = folder / writers.OUT / file.relative_to(alone)
        if file.suffix in SAME and copy.exists() and copy.read_bytes() != file.read_bytes():
            found.append(f"other: {copy.name} differs from that of one command alone")
    return found


TWO_WRITERS = Kind("two-writers", whole=72, tenth=5, case=_case, prepare=writers.prepare)
