"""The directive `options`: every option of a command, as its parser tells them."""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by the command's name."""
    from captioning.cli.program import LIGHTNING, _parser

    [commands] = (
        action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return {
        name: lightning_parser(name) if name in LIGHTNING else parser
        for name, parser in commands.choices.items()
    }


class _ParserKnownError(Exception):
    """Ends the making of a training before it has read anything."""


@cache
def lightning_parser(command: str) -> argparse.ArgumentParser:
    """The parser of `train` or `features`, which LightningCLI makes."""
    from captioning.training.configured_training import FeaturesCLI, TrainCLI

    found: list[argparse.ArgumentParser] = []

    class Asked({"train": TrainCLI, "features": FeaturesCLI}[command]):  # type: ignore[misc]
        def parse_arguments(self, parser: Any, args: Any) -> NoReturn:
            found.append(parser)
            raise _ParserKnownError

    try:
        Asked([])
    except _ParserKnownError:
        return found[0]
    raise AssertionError("the parser was never asked")


def shown(command: str) -> list[argparse.Action]:
    """What a command may be given, but the keys of configurations, in the parser's order.

    Lightning's commands take every key of a configuration as an option too; these are the page
    of the keys.
    """
    actions = [
        action
        for action in parsers()[command]._actions
        # LightningCLI keeps links between options among them, named by arrows.
        if not any("-->" in flag for flag in action.option_strings)
    ]
    return [action for action in actions if "." not in action.dest]


def groups(command: str) -> Iterator[tuple[str, str, list[argparse.Action]]]:
    """Title, description and actions of each group of a command's options that has any."""
    wanted = shown(command)
    for group in parsers()[command]._action_groups:
        actions = [action for action in group._group_actions if action in wanted]
        if actions:
            yield group.title or "", group.description or "", actions


def options_text(command: str) -> str:
    """The options of a command by group as Markdown, each a target of the role `option`."""
    lines = [f"```{{program}} captioning {command}", "```", ""]
    for title, description, actions in groups(command):
        lines += [
            f"```{{rubric}} {title[:1].upper()}{title[1:]}",
            "```",
            "",
            plain(description),
            "",
        ]
        for action in actions:
            lines += [f":::{{option}} {_signature(action)}", plain(action_help(action)), ":::", ""]
    return "\n".join(lines)


class Options(SphinxDirective):
    """Every option of the command that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """What the option does, and its default."""
        return self.parse_text_to_nodes(options_text(self.arguments[0]))


def action_help(action: argparse.Action) -> str:
    """An option's help, with its default where it tells none."""
    told = (action.help or "").replace("%%", "%")
    if action.choices and not isinstance(action.choices, dict):
        told = f"{told} [{', '.join(map(str, action.choices))}]"
    if getattr(action, "required", False) and action.option_strings:
        told = f"{told} (required)"
    return told


def plain(text: str) -> str:
    """Help as Markdown that shows it: code stays code, nothing else is markup."""
    text = re.sub(r":[\w:]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`", r"`\1`", " ".join(text.split()))
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(
        f"`{part.strip('`')}`"
        if part.startswith("`")
        else re.sub(r"([\\*_\[\]<>#$|{}])", r"\\\1", part)
        for part in parts
    )


def _signature(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if metavar.startswith("\b"):  # of jsonargparse: no space before what may follow
        return ", ".join(f"{flag}{metavar[1:]}" for flag in action.option_strings)
    return ", ".join(f"{flag} {metavar}".strip() for flag in action.option_strings)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directive."""
    app.add_directive("options", Options)
    return {"parallel_read_safe": True}
