"""Lists in pages of the reference, which are made from the code and can be read as they are.

``python -m docs._ext.reference`` makes them again.
"""

import re
from pathlib import Path

from .configuration_keys import classes_text, keys_text
from .options import commands_text

FOLDER = Path(__file__).parents[1] / "reference"
PAGES = (FOLDER / "commands.md", FOLDER / "configuration-keys.md")

LIST = re.compile(r"(?<=<!-- )(commands|keys|classes) ?(\S*)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
"""What is made, of which group or key, and the comments around it."""


def renewed(page: str) -> str:
    """A page with its lists as the code has them."""

    def new_list(match: re.Match[str]) -> str:
        kind, of, end = match.groups()
        text = {"commands": lambda _: commands_text(), "keys": keys_text, "classes": classes_text}
        return f"{kind} {of}".rstrip() + f"{end}\n{text[kind](of).strip()}\n\n"

    return LIST.sub(new_list, page)


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(renewed(file.read_text()))
