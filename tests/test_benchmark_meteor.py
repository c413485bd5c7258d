"""The times of METEOR: that both programs are run, and on the same captions."""

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.meteor import drawn, table, written
from captioning.errors import InputError


def test_both_score_the_same_captions_and_are_told() -> None:
    pytest.importorskip("pycocoevalcap")
    for program in ("java", "taskset"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    first, _, *rows = table(count=4, rounds=1, core=0, captions=None).splitlines()
    assert first.startswith("| 4 captions, 5 references each | loading | scoring | start to end |")
    assert [row.split("|")[1].strip() for row in rows] == [
        "`--meteor`, with the copy",
        "`--meteor-java`",
    ]
    for row in rows:
        loading, scoring, whole = map(float, re.findall(r"([\d.]+) s \|", row))
        assert whole >= loading + scoring - 0.1  # each is rounded


def test_drawn_captions_have_five_references_each() -> None:
    pairs = drawn(7)
    assert len(pairs) == 7
    assert all(caption and len(references) == 5 for caption, references in pairs)


def test_captions_of_flickr8k_are_scored_by_their_photo_s_others(tmp_path: Path) -> None:
    lines = [f"{photo}.jpg#{n}\t{photo} {n}" for photo in "abc" for n in range(5)]
    (tmp_path / "tokens.txt").write_text("\n".join([*lines, "d.jpg#0\talone"]))
    pairs = written(tmp_path / "tokens.txt", count=2)
    assert pairs[0] == (
        ["a", "0"],
        [["a", "1"], ["a", "2"], ["a", "3"], ["a", "4"], ["b", "0"]],
    )
    assert len(pairs) == 2


def test_missing_captions_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        written(tmp_path / "tokens.txt", 3)
