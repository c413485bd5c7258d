import json
import sys
import unicodedata

import pytest

from captioning.errors import (
    UNPRINTABLE,
    InputError,
    PhotoError,
    format_value,
    printable,
    printable_json,
    reading,
)

HOSTILE = "caf\udce9 \x1b[31m a\nb\tc \x9b \u202egpj \x7f \u2028"


def test_what_moves_a_cursor_or_turns_writing_is_escaped() -> None:
    assert printable(HOSTILE) == r"caf\udce9 \x1b[31m a\nb\tc \x9b \u202egpj \x7f \u2028"
    assert printable("a\tb", 1) == "a\\tb\t1"  # no cell has a tab
    words = "naïve Straße 😀 👩\u200d🚒 日本語 עברית हिन्दी \\x1b"
    assert printable(words) == words
    line = printable_json({HOSTILE: [HOSTILE, "é", 1.5]})
    assert not UNPRINTABLE.search(line)
    assert "é" in line
    assert json.loads(line) == {HOSTILE: [HOSTILE, "é", 1.5]}


def test_every_control_character_and_direction_is_known() -> None:
    turning = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    for character in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or (
            unicodedata.bidirectional(character) in turning
        ):
            assert UNPRINTABLE.fullmatch(character)


def test_an_error_of_a_block_names_what_was_read() -> None:
    class LibraryError(Exception):
        pass

    for error in (ValueError("wrong"), OSError(5, "wrong"), LibraryError("wrong")):
        with pytest.raises(InputError, match=r"^table: wrong$"), reading("table", LibraryError):
            raise error
    with pytest.raises(ZeroDivisionError), reading("table"):
        raise ZeroDivisionError


def test_errors_are_matched_and_show_values_in_one_line() -> None:
    match PhotoError("a.jpg", "cut short"):
        case PhotoError(path, reason):
            assert (path, reason) == ("a.jpg", "cut short")
    assert str(InputError("a\nb\x1b.jpg: no such file")) == r"a\nb\x1b.jpg: no such file"
    assert len(format_value({"a": ["x" * 1000] * 1000})) <= 60
