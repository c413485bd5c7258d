"""METEOR against values of its authors' program."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import InputError
from captioning.metrics.meteor import Match, Meteor, align, paraphrases
from captioning.metrics.meteor_words import normalized, stem

# Caption, references, and what `java -jar meteor-1.5.jar - - -stdio -l en -norm` gives.
MEASURED: list[tuple[str, list[str], float]] = json.loads(
    (Path(__file__).parent / "meteor.json").read_text(encoding="utf-8")
)
UNKNOWN = [("<unk>", ["<unk>"], 0), ("zzz <unk>", ["zzz unk"], 0.5 * (1 - 0.6))]
"""Half of the words match, in as many chunks."""


def assert_scores(meteor: Meteor, rows: list[tuple[str, list[str], float]]) -> None:
    """Compare METEOR of captions with expected scores."""
    captions, references, expected = zip(*rows, strict=True)
    tokens = [[text.split() for text in texts] for texts in references]
    scores = meteor([caption.split() for caption in captions], tokens)
    np.testing.assert_allclose(scores.images["METEOR"], expected, rtol=0, atol=1e-9)


@pytest.mark.integration  # reads a file of many paraphrases
def test_scores_are_those_that_its_program_gave() -> None:
    pytest.importorskip("pycocoevalcap")
    assert_scores(Meteor(), MEASURED + UNKNOWN)


def test_scores_without_paraphrases(tmp_path: Path) -> None:
    pytest.importorskip("pycocoevalcap")
    meteor = Meteor()
    meteor._paraphrases = tmp_path / "paraphrase-en.gz"
    meteor._paraphrases.write_bytes(gzip.compress(b""))
    assert_scores(meteor, MEASURED[3:6] + MEASURED[8:11] + UNKNOWN)


# Words of the reference and the caption, as `-writeAlignments` of the program has them.
@pytest.mark.parametrize(
    ("caption", "reference", "expected"),
    [
        ("in in", "in", [(0, 0)]),
        ("grass", "grass a grass", [(2, 0)]),
        ("a the", "in the the", [(2, 1)]),
        ("the grass", "grass grass grass in in", [(0, 1)]),
        ("a the dog", "a dog runs a grass", [(1, 2), (3, 0)]),
        ("running the running", "running on running a in", [(0, 0), (2, 2)]),
        ("running", "running runs in running a", [(0, 0)]),
        ("dog on running the running", "running runs", [(0, 4)]),
        ("dog on on running", "dog runs dog", [(2, 0)]),
        ("on running on runs in", "a ground runs runs", [(3, 3)]),
    ],
)
def test_of_alignments_equally_good_it_takes_that_of_its_program(
    caption: str, reference: str, expected: list[tuple[int, int]]
) -> None:
    matches = sorted(  # by module
        Match(module, start, 1, caption_start, 1)
        for start, word in enumerate(reference.split())
        for caption_start, other in enumerate(caption.split())
        for module in ([0] if word == other else [1, 2] if stem(word) == stem(other) else [])
    )
    found = align(matches, len(reference.split()), len(caption.split()))
    assert [(match.start, match.caption_start) for match in found] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a t-shirt", "a t shirt"),
        ("n't 's", "n 't ' s"),
        ("u.s. 1,000 c++", "us 1,000 c + +"),
        ("mr. a no. 5 ...", "mr. a no . 5 ..."),
        ("a--b -a - “x” 日本", 'a b -a - " x " 日 本'),
    ],
)
def test_words_are_cut_as_its_program_cuts_them(text: str, expected: str) -> None:
    assert " ".join(normalized(text)) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("runs", "run"), ("realization", "realiz"), ("rotationally", "rotat"), ("hoping", "hope")],
)
def test_stems_are_those_of_the_snowball_rules(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_pairs_of_known_phrases_keep_the_order_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "paraphrase-en.gz"
    path.write_bytes(gzip.compress(b"0.5\na b\nd\n0.5\na b\nc\n0.25\na\nb c\n"))
    known = {"a b": {"d": 0, "c": 1}, "c": {}, "d": {}}
    assert paraphrases(path, ["a", "c", "d", "a b"]) == known


def test_without_its_files_one_line_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.metrics.meteor.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"METEOR needs the package pycocoevalcap; `pip install"):
        Meteor()
