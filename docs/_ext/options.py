"""The sections of the page of commands, made from the commands, and LightningCLI's parser."""

import argparse
import re
from functools import cache
from typing import Any, NoReturn


def commands_text() -> str:
    """A section for every command with its options, as Markdown."""
    from captioning.commands import COMMANDS, app

    text = app(imports_all=True).generate_docs()
    first, after = (text.index(f"## captioning {name}") for name in (next(iter(COMMANDS)), "--"))
    return text[first:after]


class _ParserKnownError(Exception):
    """Stops LightningCLI once its parser is made."""


@cache
def lightning_parser() -> argparse.ArgumentParser:
    """The parser of `train` and `features`, which LightningCLI makes."""
    from captioning.training.train_cli import TrainCLI

    parsers: list[argparse.ArgumentParser] = []

    class Asked(TrainCLI):
        def parse_arguments(self, parser: Any, args: Any) -> NoReturn:
            parsers.append(parser)
            raise _ParserKnownError

    try:
        Asked([])
    except _ParserKnownError:
        return parsers[0]
    raise AssertionError("the parser was never asked")


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
