"""Scores of captions in plain lists and mappings."""

from typing import Any, cast

import pytest

from captioning.errors import InputError
from captioning.evaluation.report import Report
from captioning.metrics import corpus_scores
from tests.conftest import unchecked

CANDIDATES = {"a": "a red bus", "b": "two dogs run", "c": "a cat on a <unk>"}
REFERENCES = {
    "c": ["a cat sleeps on a chair", "A cat on a red chair."],
    "b": ["two dogs run on grass"],
    "a": ["a red bus on a street", "a bus drives"],
    "of no candidate": ["a tree"],
}


def test_lists_and_mappings_have_the_scores_of_a_report() -> None:
    expected = Report.of(CANDIDATES, REFERENCES).corpus
    metrics = ("CIDEr", "ROUGE-L", "BLEU")
    names = ["CIDEr", "ROUGE-L", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
    scores = corpus_scores(CANDIDATES, REFERENCES, metrics)
    assert list(scores) == names
    assert scores == {name: expected[name] for name in names}
    references = [REFERENCES[image] for image in CANDIDATES]
    assert corpus_scores(list(CANDIDATES.values()), references) == {"CIDEr": expected["CIDEr"]}
    one_reference = {"a": "a bus", "b": "two dogs"}  # a text is one reference, not its letters
    assert corpus_scores(one_reference, one_reference, "BLEU")["BLEU-1"] == pytest.approx(1)


def test_the_tokenizer_is_that_of_the_option() -> None:
    captions, references = ["狗在跑", "猫"], [["狗跑"], ["猫"]]
    assert corpus_scores(captions, references, "BLEU", "characters")["BLEU-1"] == pytest.approx(
        0.75
    )
    assert corpus_scores(captions, references, "BLEU")["BLEU-1"] == pytest.approx(0.5)


def test_an_unknown_tokenizer_is_refused_with_the_names_of_others() -> None:
    with unchecked(), pytest.raises(InputError, match="foo: unknown; choose from ptb, characters"):
        corpus_scores(["a dog"], [["a dog"]], tokenizer=cast("Any", "foo"))


@pytest.mark.parametrize(
    ("candidates", "references", "metrics", "expected"),
    [
        (["a"], [["a"], ["b"]], ("CIDEr",), "1 candidates, but references of 2 images"),
        ({1: "a"}, [["a"]], ("CIDEr",), "both as lists, or both by image"),
        ({1: "a"}, {2: ["a"]}, ("CIDEr",), "image 1 has a caption but no reference"),
        (["a", "b"], [["a"], []], ("CIDEr",), "image 1 has a caption but no reference"),
        ([["a"]], [["a"]], ("CIDEr",), r"image 0: \['a'\] is not a caption"),
        ({7: "a"}, {7: [None]}, ("CIDEr",), "image 7: None is not a caption"),
        ([], [], ("CIDEr",), "there are no captions"),
        (["a"], [["a"]], ("SPIDEr",), "SPIDEr: unknown; choose from BLEU, ROUGE-L, CIDEr"),
    ],
)
def test_captions_that_cannot_be_scored_are_one_line(
    candidates: Any, references: Any, metrics: Any, expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        corpus_scores(candidates, references, metrics)
