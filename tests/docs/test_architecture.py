"""The architecture page lists the rooms of the package."""

import re

from tests.docs.pages import DOCS

PACKAGE = DOCS.parent / "captioning"


def test_the_table_has_every_room() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    rooms = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == rooms
