"""Command lines over all commands and every option, which the parsers tell."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds.given import NUMBERS, WORDS, Given
from tests.campaign.kinds.options import Option
from tests.campaign.world import World

STRIDE = 89
"""From one case's option to the next one's, so that few cases are of all commands."""

MANY = tuple(number for number in NUMBERS if number not in (str(2**31), "1e3", "1_000"))

POOLS = {
    "--device": ("", "cpu", "cuda", "mps", "meta", "xla", "cuda:99", "cpu:1", "CPU", "x", "\n"),
    "--host": ("", "127.0.0.1", "::1", "localhost", "::ffff:127.0.0.1", "\n", "a" * 300, "::", "%"),
    "--split": ("val", "train", "test", "", "nowhere", "val\n", "../val", "\x1b[2J"),
    # What is right there takes other machines, other processes, or as long as one asks for.
    "--num-nodes": ("0", "-1", "1", "nan", "x", "", str(10**20)),
    "--ray": ("", "x", "127.0.0.1:9", "127.0.0.1:", ":0", "[::1]:9", "\n", "127.0.0.1:" + "9" * 20),
    "--processes": ("0", "-1", "1", "nan", "x", "", str(10**20)),
    "--devices": ("0", "-1", "1", "nan", "x", "", str(10**20)),
    "--trainer.num_nodes": ("0", "-1", "1", "nan", "x", "", "null"),
    "--trainer.devices": ("0", "-1", "1", "nan", "x", "", "null", "[0, 0]", str(10**20)),
    "--trainer.min_epochs": ("0", "-1", "1", "nan", "x", "", "inf"),
    "--trainer.min_steps": ("0", "-1", "1", "nan", "x", "", "inf"),
    **dict.fromkeys(("--train", "--val", "--test"), MANY),
}
"""Values of options for which not every value is tried."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    given = Given(world, folder)
    options = _options(world.options)
    first = options[number * STRIDE % len(options)]
    command = first["command"]
    others = [option for option in options if option["command"] == command]
    more = min(random.choice((0, 0, 1, 2)), len(others))
    chosen = [first, *random.sample(others, k=more)]
    arguments = [command, *_base(command, world)]
    for option in chosen:
        arguments = _with(arguments, option, random, given)
    if random.random() < 0.05:  # options cut off, doubled, or where they do not belong
        random.shuffle(arguments)
        arguments = [argument.replace("\0", "") for argument in arguments if random.random() < 0.8]
    return Case(" ".join(map(_short, arguments)), _steps(arguments, folder, given))


def _steps(arguments: list[str], folder: Path, given: Given) -> Steps:
    address = "http://" if {"demo", "serve"} & set(arguments) else None
    outcome = yield Call(arguments, interrupt_at=address)
    lists = [Path(file) for flag, file in pairwise(arguments) if flag == "--list"]
    lists = [file for file in lists if file.name and "\0" not in str(file) and file.is_file()]
    inputs = len(arguments) + sum(file.read_bytes().count(b"\n") + 1 for file in lists)
    return [
        *judge.faults(outcome, folder, inputs, silent="check" in arguments),
        *judge.half_written(folder),
        *given.replaced(),
    ]


@cache
def _options(path: Path) -> list[Option]:
    options: list[Option] = json.loads(path.read_text())
    return options


def _base(command: str, world: World) -> list[str]:
    """Arguments of a command that is quick and right."""
    model = ["--model", str(world.model)]
    return {
        "calibrate": ["out.safetensors", "--data", str(world.shapes), *model, "--limit", "2"],
        "caption": [str(world.photos[0]), *model],
        "check": [str(world.shapes)],
        "compare": [str(world.results), str(world.results), str(world.references)],
        "demo": ["--no-browser"],
        "evaluate": ["--data", str(world.shapes), *model, "--out", "out", "--limit", "2"],
        "export": ["out.safetensors", *model],
        "features": ["--config", str(world.frozen), "--data.features", "out"],
        "ground": ["--data", str(world.shapes), *model, "--out", "out", "--limit", "2"],
        "judge": [str(world.ratings), "--references", str(world.references)],
        "score": [str(world.results), str(world.references)],
        "serve": [*model, "--host", "127.0.0.1", "--port", "0"],
        "shapes": ["out", "--train", "2", "--val", "1", "--test", "1", "--pixels", "32"],
        "train": [
            *("--config", str(world.config), "--trainer.default_root_dir", "out"),
            *("--trainer.max_steps", "3"),
        ],
    }.get(command, [])


def _with(arguments: list[str], option: Option, random: Random, given: Given) -> list[str]:
    """The arguments with this option in place of what they have of it."""
    flag = option["flag"]
    if flag is None:
        return _with_positional(arguments, random, given)
    if flag in arguments:
        at = arguments.index(flag)
        arguments = arguments[:at] + arguments[at + 2 :]
    if not option["takes"]:
        return [*arguments, flag]
    if flag in POOLS:
        value = random.choice(POOLS[flag])
    elif option["choices"] and random.random() < 0.3:
        value = random.choice(option["choices"])
    elif any(name in option["type"] for name in ("int", "float", "positive", "port")):
        value = random.choice(NUMBERS if random.random() < 0.8 else WORDS)
    elif option["metavar"] in ("FILE", "DIR", "CHECKPOINT"):
        value = random.choice(given.paths if random.random() < 0.8 else WORDS)
    else:
        value = given.value(random)
    return [*arguments, f"{flag}={value}"] if random.random() < 0.5 else [*arguments, flag, value]


def _with_positional(arguments: list[str], random: Random, given: Given) -> list[str]:
    command, *rest = arguments
    value = random.choice(given.paths)
    return [command, value, *rest[1:]] if random.random() < 0.7 else [command, value, *rest]


def _short(argument: str) -> str:
    shown = (
        argument if argument.isprintable() and argument and " " not in argument else repr(argument)
    )
    return shown if len(shown) < 100 else f"{shown[:60]}...({len(shown)})"


COMMAND_LINES = Kind("command-lines", whole=1000, tenth=100, case=_case)
