"""Every option of every command, as the parsers themselves tell them."""

import argparse
from importlib import import_module
from typing import Any, NoReturn

Option = dict[str, Any]
"""command, flag (none for a positional), takes (a value), type, choices, required, default."""


def all_options() -> list[Option]:
    """The options of all commands."""
    from captioning.cli.program import COMMANDS, LIGHTNING

    found = []
    for command in COMMANDS:
        actions = _lightning_actions(command) if command in LIGHTNING else _actions(command)
        found += [_option(command, action) for action in actions if _is_option(action)]
    return found


def _actions(command: str) -> list[argparse.Action]:
    """The options of a command whose parser is argparse's."""
    parser = argparse.ArgumentParser()
    import_module(f"captioning.cli.{command}").add_options(parser)
    return parser._actions


def _is_option(action: argparse.Action) -> bool:
    # LightningCLI keeps links between options among them, named by arrows.
    return not any("-->" in flag for flag in action.option_strings)


def _option(command: str, action: argparse.Action) -> Option:
    default = action.default
    return {
        "command": command,
        "flag": next((flag for flag in action.option_strings if flag.startswith("--")), None),
        "dest": action.dest,
        "takes": action.nargs != 0,
        "type": str(getattr(action, "_typehint", None) or getattr(action.type, "__name__", "str")),
        "choices": [str(choice) for choice in action.choices or ()],
        "metavar": str(action.metavar or ""),
        "default": default if isinstance(default, int | float | str | None) else None,
    }


class _ParserKnownError(Exception):
    """Ends the making of a training before it has read anything."""


def _lightning_actions(command: str) -> list[argparse.Action]:
    """The options of a command that is LightningCLI's."""
    from captioning.training.configured_training import FeaturesCLI, TrainCLI

    found: list[argparse.Action] = []

    class Asked({"train": TrainCLI, "features": FeaturesCLI}[command]):  # type: ignore[misc]
        def parse_arguments(self, parser: Any, args: Any) -> NoReturn:
            found.extend(parser._actions)
            raise _ParserKnownError

    try:
        Asked([])
    except _ParserKnownError:
        return found
    raise AssertionError("the parser was never asked")
