"""The directive `options`: every option of a command, read from its parser."""

import argparse
import re
from functools import cache
from importlib import import_module
from typing import Any, NoReturn

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by the command's name."""
    from captioning.cli.program import COMMANDS, LIGHTNING

    return {
        name: lightning_parser(name) if name in LIGHTNING else _argparse_parser(name)
        for name in COMMANDS
    }


def _argparse_parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"captioning {command}")
    import_module(f"captioning.cli.{command}").add_options(parser)
    return parser


class _ParserKnownError(Exception):
    """Stops LightningCLI once its parser is made."""


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


def options_text(command: str) -> str:
    """The options of a command by group, as Markdown.

    The keys of configurations, which have a dot in their names, are on a page of their own. Links
    between keys, which LightningCLI keeps among the options, have an arrow in theirs.
    """
    lines = [f"```{{program}} captioning {command}", "```", ""]
    for group in parsers()[command]._action_groups:
        actions = [
            action
            for action in group._group_actions
            if "." not in action.dest and not any("-->" in flag for flag in action.option_strings)
        ]
        if not actions:
            continue
        title = group.title or ""
        lines += [f"```{{rubric}} {title[:1].upper()}{title[1:]}", "```", ""]
        lines += [plain(group.description or ""), ""]
        for action in actions:
            lines += [f":::{{option}} {_signature(action)}", plain(action_help(action)), ":::", ""]
    return "\n".join(lines)


def action_help(action: argparse.Action) -> str:
    """An option's help, with its choices and whether it is required."""
    text = (action.help or "").replace("%%", "%")
    if action.choices and not isinstance(action.choices, dict):
        text = f"{text} [{', '.join(map(str, action.choices))}]"
    if getattr(action, "required", False) and action.option_strings:
        text = f"{text} (required)"
    return text


def plain(text: str) -> str:
    """Help as Markdown: code stays code, nothing else is markup."""
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
    if metavar.startswith("\b"):  # jsonargparse: no space before an optional part
        return ", ".join(f"{flag}{metavar[1:]}" for flag in action.option_strings)
    return ", ".join(f"{flag} {metavar}".strip() for flag in action.option_strings)


class Options(SphinxDirective):
    """Every option of the command that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Each option's meaning and default."""
        return self.parse_text_to_nodes(options_text(self.arguments[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("options", Options)
    return {"parallel_read_safe": True}
