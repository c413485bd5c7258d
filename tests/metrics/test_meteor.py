"""METEOR against values of its authors' program."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import InputError
from captioning.metrics.meteor import Match, Meteor, align
from captioning.metrics.meteor_paraphrases import Paraphrases, cached
from captioning.metrics.meteor_words import normalized, stem
from captioning.metrics.scores import SummedScores

# Caption, references, and what `java -jar meteor-1.5.jar - - -stdio -l en -norm` gives.
MEASURED: list[tuple[str, list[str], float]] = json.loads(
    (Path(__file__).parent / "meteor.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def meteor() -> Meteor:
    pytest.importorskip("pycocoevalcap")
    return Meteor()


def words(captions: list[str]) -> list[list[str]]:
    return [caption.split() for caption in captions]


@pytest.fixture(scope="module")
def scores(meteor: Meteor) -> SummedScores:
    references = [words(written) for _, written, _ in MEASURED]
    return meteor(words([caption for caption, _, _ in MEASURED]), references)


def test_scores_are_those_that_its_program_gave(scores: SummedScores) -> None:
    measured = [score for _, _, score in MEASURED]
    np.testing.assert_allclose(scores.images["METEOR"], measured, rtol=0, atol=1e-9)


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


def test_the_unknown_word_matches_nothing(meteor: Meteor) -> None:
    scores = meteor([["<unk>"], ["a", "<unk>"]], [[["<unk>"]], [["a", "unk"]]])
    assert scores.images["METEOR"][0] == 0
    assert scores.statistics[1, 21] == 1


@pytest.mark.parametrize(
    ("word", "expected"),
    [("runs", "run"), ("realization", "realiz"), ("rotationally", "rotat"), ("hoping", "hope")],
)
def test_stems_are_those_of_the_snowball_rules(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.fixture
def paraphrases(tmp_path: Path) -> Path:
    """A file with `c` for `a b`, and `b c` for `a`."""
    path = tmp_path / "paraphrase-en.gz"
    path.write_bytes(gzip.compress(b"0.5\na b\nc\n0.25\na\nb c\n"))
    return path


def test_phrases_are_found_anywhere_but_within_a_sentence(paraphrases: Path) -> None:
    found = Paraphrases.read(paraphrases).occurrences(
        [["x", "a", "b"], ["a"], ["b", "c", "a", "b"]]
    )
    assert [[phrase[:2] for phrase in each] for each in found] == [
        [(1, 1), (2, 1), (1, 2)],
        [(0, 1)],
        [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (2, 2)],
    ]


def test_a_phrase_has_the_paraphrases_of_the_table(paraphrases: Path) -> None:
    table = Paraphrases.read(paraphrases)
    [[(_, _, a), (_, _, _), (_, _, ab)], [(_, _, c)]] = table.occurrences([["a", "b"], ["c"]])
    assert table.of_phrase(ab) == {c: 0}
    assert len(table.of_phrase(a)) == 1
    assert table.of_phrase(c) == {}


def test_without_its_files_one_line_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.metrics.spice.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"METEOR needs the package pycocoevalcap; `pip install"):
        Meteor()


def test_the_table_is_converted_once(
    paraphrases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = Paraphrases.load(paraphrases)
    assert cached(paraphrases).parent == tmp_path / "cache/captioning"
    monkeypatch.setattr(Paraphrases, "read", None)
    for name, values in vars(Paraphrases.load(paraphrases)).items():
        np.testing.assert_array_equal(values, getattr(first, name))
