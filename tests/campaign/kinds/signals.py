"""Signals to commands at random moments: Ctrl-C, SIGTERM, and SIGHUP as of a closed terminal.

A command ends with one line and the exit code of the signal, leaves no part of a file, and can be
run again.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Timer

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call, run
from tests.campaign.kinds import writers
from tests.campaign.world import World

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ENDLESS = ("serve", "demo")


def _calls(world: World) -> dict[str, tuple[Call, float]]:
    """The commands by name, and about how many seconds they take."""
    model = ["--model", str(world.model)]
    others = {
        "caption": ["caption", *map(str, world.photos), *model],
        "check": ["check", str(world.shapes)],
        "score": ["score", str(world.results), str(world.references)],
        "models": ["models"],
        "serve": ["serve", *model, "--host", "127.0.0.1", "--port", "0"],
        "demo": ["demo", "--no-browser", "--port", "0"],
    }
    written = writers.calls(world)
    return {name: (call, writers.seconds(world, name)) for name, call in written.items()} | {
        name: (Call(arguments), 1.0) for name, arguments in others.items()
    }


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    calls = _calls(world)
    name = list(calls)[number % len(calls)]
    call, length = calls[name]
    sent, to_group = random.choice(SIGNALS), random.random() < 0.5
    moment = random.uniform(0.005, 1.1 * length)
    label = f"{name}: {sent.name} after {moment:.2f} s{', to its workers too' if to_group else ''}"
    return Case(label, _steps(name, call, sent, to_group, moment, folder))


def _steps(
    name: str, call: Call, sent: signal.Signals, to_group: bool, moment: float, folder: Path
) -> Steps:
    def send() -> None:
        (os.killpg if to_group else os.kill)(os.getpid(), sent)

    outcome = yield replace(call, instead=lambda: _run_until(moment, send, call.arguments))
    found = [*judge.faults(outcome, folder), *judge.half_written(folder)]
    if outcome.code not in (0, 128 + sent) and not found:
        found = [f"other: exit code {outcome.code} after {sent.name}: {outcome.err[-200:]}"]
    if name in ENDLESS:
        return found
    arguments = list(call.arguments)
    if arguments[0] == "train":
        arguments[arguments.index("--overwrite")] = "--resume"
    again = yield replace(call, arguments=arguments)
    found += [*judge.faults(again, folder), *judge.half_written(folder)]
    if again.code != 0:
        found.append(f"other: not done when run again: {again.err[-200:]}")
    return found


def _run_until(moment: float, do: Callable[[], None], arguments: Sequence[str]) -> int:
    """Run a command, and do something to it after so many seconds."""
    timer = Timer(moment, do)
    timer.daemon = True
    timer.start()
    try:
        return run(arguments)
    finally:
        timer.cancel()


SIGNALLED = Kind("signals", whole=144, tenth=8, case=_case, prepare=writers.prepare)
