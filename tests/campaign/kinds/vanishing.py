"""Folders that are removed while a command runs: the one that it writes to, or its inputs.

A command that says it is done has written everything; another says what is missing.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Timer

import yaml

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds import writers
from tests.campaign.world import World

INPUTS = 12
"""Photos that a command may name, each in a line, when they are gone."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    names = list(writers.calls(world))
    name = names[number % len(names)]
    of_input = random.random() < 0.4
    moment = random.uniform(0, 1.1 * writers.seconds(world, name))
    label = f"{name}: its {'input' if of_input else 'output'} removed after {moment:.2f} s"
    call = writers.calls(_copied(world, folder / "given") if of_input else world)[name]
    removed = folder / ("given" if of_input else writers.OUT)
    return Case(label, _steps(world, name, call, removed, moment, folder))


def _steps(
    world: World, name: str, call: Call, removed: Path, moment: float, folder: Path
) -> Steps:
    outcome = yield replace(call, before=partial(_remove_after, moment, removed, call.before))
    found = [*judge.faults(outcome, folder, INPUTS), *judge.half_written(folder)]
    if outcome.code == 0:
        found += writers.missing(world, name, folder / writers.OUT)
    if removed.name == writers.OUT:
        again = yield call
        found += [*judge.faults(again, folder), *judge.half_written(folder)]
        if again.code != 0:
            found.append(f"other: not done when run again: {again.err[-200:]}")
    return found


def _remove_after(moment: float, folder: Path, also: Callable[[], object] | None) -> None:
    if also is not None:
        also()
    timer = Timer(moment, _remove, (folder,))
    timer.daemon = True
    timer.start()


def _remove(folder: Path) -> None:
    """Remove a folder at once, so that nothing is written into half of it."""
    gone = folder.with_name("gone")
    with suppress(FileNotFoundError):  # it is not there yet
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _copied(world: World, folder: Path) -> World:
    """The world's inputs in another folder."""
    copy = World(folder)
    shutil.copytree(world.shapes, copy.shapes)
    shutil.copytree(world.model.parent, copy.model.parent)
    for file in (world.results, world.ratings):
        shutil.copy(file, folder)
    for file in (world.config, world.frozen):
        settings = yaml.safe_load(file.read_text())
        settings["data"]["reader"]["init_args"]["root"] = str(copy.shapes)
        (folder / file.name).write_text(yaml.safe_dump(settings))
    return copy


VANISHING = Kind("vanishing", whole=90, tenth=6, case=_case, prepare=writers.prepare)
