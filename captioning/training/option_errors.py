"""What the parser of options complains of, in one line."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

LONGEST = 400
"""Characters of a parser's message, which may quote a whole configuration."""

CLOSE = 0.85
"""How alike two whole options are where one may be meant by the other."""

OWN_CLASS = "a class of your own needs --import MODULE; see docs/configuration.md"


def one_line(message: str, given: Iterable[str], known: Collection[str]) -> str:
    """The parser's message as it is, in one line, with a remedy.

    Args:
        message: what jsonargparse said, in however many lines.
        given: the options that were given, such as ``model.learnin_rate``.
        known: all options, and the names of classes' arguments, such as ``hidden_dim``.
    """
    remedy = OWN_CLASS if "import" in message.lower() else "see captioning train --help"
    if "arguments are required" in message:
        remedy = "start from a configuration: captioning train --config configs/shapes.yaml"
    for option in given:
        last = option.rpartition(".")[2]
        if option not in known and last not in known:
            near = get_close_matches(option, known, 1, CLOSE) or get_close_matches(last, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else remedy
    return f"{_shortened(message)}; {remedy}"


def first_cause(error: BaseException) -> str:
    """What an error that has passed through several hands began with, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _shortened(str(error)) or type(error).__name__


def _shortened(text: str) -> str:
    """The text in one line, the names of types as people write them."""
    line = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", " ".join(text.split())).rstrip(".")
    line = line.replace("NoneType", "null")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
