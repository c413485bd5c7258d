import io
import json
import sys
import unicodedata

import pytest
from torch.utils.data import DataLoader, Dataset

from captioning.data.images import PhotoSizeError
from captioning.errors import InputError
from captioning.terminal import (
    UNPRINTABLE,
    escape_what_cannot_be_encoded,
    printable,
    printable_json,
)

HOSTILE = "caf\udce9 \x1b[31m a\nb\tc \x9b \u202egpj \ud83d \x7f \u2028"


def test_what_moves_a_cursor_or_turns_writing_around_is_escaped() -> None:
    assert printable(HOSTILE) == (r"caf\xe9 \x1b[31m a\nb\tc \u009b \u202egpj \ud83d \x7f \u2028")


def test_words_of_all_scripts_stay_as_they_are() -> None:
    words = "naïve Straße 😀 👩\u200d🚒 日本語 עברית हिन्दी \\x1b"
    assert printable(words) == words


def test_escaping_again_changes_nothing() -> None:
    assert printable(printable(HOSTILE)) == printable(HOSTILE)


def test_cells_stand_between_tabs_that_no_cell_can_have() -> None:
    assert printable("a\tb", 1) == "a\\tb\t1"


def test_every_control_character_and_direction_of_unicode_is_known() -> None:
    turning = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    for character in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or (
            unicodedata.bidirectional(character) in turning
        ):
            assert UNPRINTABLE.fullmatch(character)


def test_json_escapes_such_characters_and_keeps_its_value() -> None:
    line = printable_json({HOSTILE: [HOSTILE, "é", 1.5]})
    assert not UNPRINTABLE.search(line)
    assert "é" in line
    assert json.loads(line) == {HOSTILE: [HOSTILE, "é", 1.5]}


def test_the_message_of_an_error_is_one_printable_line() -> None:
    assert str(InputError("a\nb\x1b.jpg: no such file")) == r"a\nb\x1b.jpg: no such file"


class _Bad(Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise PhotoSizeError("a\nb: c.jpg: too large; scale it down")


def test_an_error_from_a_worker_is_the_error_that_the_worker_raised() -> None:
    with pytest.raises(PhotoSizeError) as caught:
        list(DataLoader(_Bad(), num_workers=1))
    assert str(caught.value) == r"a\nb: c.jpg: too large; scale it down"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_printed_as_json_escapes_it(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    escape_what_cannot_be_encoded()
    print('"é 😀 \udce9"', flush=True)
    assert isinstance(stream.buffer, io.BytesIO)
    printed = stream.buffer.getvalue().decode(encoding)
    assert json.loads(printed) == "é 😀 \udce9"


@pytest.mark.parametrize("stream", [None, io.StringIO()], ids=["closed", "of a notebook"])
def test_streams_that_cannot_change_stay_as_they_are(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    escape_what_cannot_be_encoded()
    assert sys.stdout is stream
