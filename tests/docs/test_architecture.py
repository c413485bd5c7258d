"""The page that says what is where: each file of the package is named in its room."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

PACKAGE = DOCS.parent / "captioning"
ROWS = dict(
    re.findall(
        r"^\| (?:`([a-z/]+/)` )?\| (.*) \|$",
        (DOCS / "explanation" / "architecture.md").read_text(),
        re.MULTILINE,
    )
)
ROOMS = sorted({file.parent for file in PACKAGE.rglob("*.py")})


def test_the_table_has_every_room() -> None:
    rooms = {f"{room.relative_to(PACKAGE)}/" for room in ROOMS if room != PACKAGE}
    assert set(ROWS) == {"", *rooms}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_s_files_are_named_and_there(room: Path) -> None:
    key = "" if room == PACKAGE else f"{room.relative_to(PACKAGE)}/"
    named = set(re.findall(r"`(\w+\.(?:ckpt|pth|py|css|html|js|json))`", ROWS[key]))
    files = {file.name for file in room.iterdir() if file.is_file()}
    assert named == files - {"__init__.py", "py.typed"}


def test_every_kernel_is_explained() -> None:
    page = (DOCS / "explanation" / "speed.md").read_text()
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    files = {file.name for file in (PACKAGE / "kernels").glob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"`(\w+\.py)`", rows)) == files
