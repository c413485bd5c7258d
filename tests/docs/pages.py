"""Pages as the tests read them: their blocks of code, and what runs those."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from PIL import Image

from captioning.commands import main

DOCS = Path(__file__).parents[2] / "docs"

SMALLER = {
    "shapes": ["--train", "6", "--val", "4", "--test", "2", "--pixels", "48"],
    "train": ["--overwrite"],  # of the checkpoints that the pages begin with
    "finetune": ["--epochs", "1", "--model", "shapes"],
}
"""What commands are given besides what a page says, so that they take no time."""


def fences(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    tokens = MarkdownIt().parse(page.read_text())
    return [(token.info.strip(), token.content) for token in tokens if token.type == "fence"]


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language."""
    return [text for found, text in fences(page) if found == language]


def commands(block: str) -> Iterator[list[str]]:
    """The arguments of each `captioning` of a block; nothing else may stand in one."""
    for line in block.replace("\\\n", " ").splitlines():
        name, *arguments = shlex.split(line)
        assert name == "captioning", f"{line}: not a command of ours; show it as a console"
        yield arguments


def run_page(page: Path) -> list[list[str]]:
    """Run a page from top to bottom in the working folder; returns the commands that ran.

    Python runs as it stands; it is written to a file instead where its first line is a comment of
    nothing but the file's name, as is YAML. A page's words for `captioning ground` and its tables
    of photos and ratings are written where its commands look for them.
    """
    ran: list[list[str]] = []
    names: dict[str, Any] = {}
    for language, text in fences(page):
        file = re.match(r"# (\w+\.(?:py|yaml))\n", text)
        if file and language in ("python", "yaml"):
            Path(file[1]).write_text(text)
            sys.modules.pop(Path(file[1]).stem, None)  # another page's module of that name
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "json" and "categories" in json.loads(text):
            Path("words.json").write_text(text)
        elif language == "text" and text.startswith("file_name,caption\n"):
            write_photos(Path("my-photos"), text)
        elif language == "text" and text.startswith("image,caption,rating\n"):
            Path("ratings.csv").write_text(text)
        elif language == "bash":
            for arguments in commands(text):
                assert main([*arguments, *SMALLER.get(arguments[0], [])]) == 0, arguments
                ran.append(arguments)
    return ran


def write_photos(folder: Path, table: str) -> None:
    """A folder of photos with its table of captions."""
    folder.mkdir()
    (folder / "captions.csv").write_text(table)
    for name in {line.partition(",")[0] for line in table.splitlines()[1:]}:
        (folder / name).parent.mkdir(exist_ok=True)
        Image.effect_noise((48, 40), 60).convert("RGB").save(folder / name)
