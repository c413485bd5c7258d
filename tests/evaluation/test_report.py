import json
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import InputError
from captioning.evaluation.report import Report
from captioning.metrics.scores import Scores

CAPTIONS = {"b.jpg": "a red bus", "a.jpg": "two brown dogs run", "c.jpg": "A red bus."}
REFERENCES = {
    "a.jpg": ["two brown dogs run on grass", "dogs run"],
    "b.jpg": ["a red bus", "a bus drives"],
    "c.jpg": ["a small cat sleeps"],
    "unseen.jpg": ["a"],
}


def test_captions_meet_the_references_of_their_own_image() -> None:
    report = Report.of(CAPTIONS, REFERENCES)
    assert report.images["ROUGE-L"][[0, 2]].tolist() == pytest.approx([1, 0.2785], abs=1e-4)
    assert report.images["BLEU-1"].tolist() == pytest.approx([1, 1, 1 / 3 * np.exp(-1 / 3)])


def test_the_unknown_word_is_one_word() -> None:
    report = Report.of({1: "a <unk> runs"}, {1: ["a dog runs"]})
    assert report.summary["mean length"] == 3
    assert report.corpus["BLEU-1"] == pytest.approx(2 / 3, rel=1e-8)


@pytest.mark.parametrize("references", [{7: ["a dog"]}, {7: ["a dog"], 42: []}])
def test_an_image_without_references_is_named(references: dict[int, list[str]]) -> None:
    with pytest.raises(InputError, match="42"):
        Report.of({7: "a dog", 42: "a cat"}, references)


def test_the_table_has_intervals_and_a_line_on_captions() -> None:
    right = Scores.of("right", np.ones(3))
    captions = CAPTIONS | {"b.jpg": "a bus by a bus"}
    references = REFERENCES | {"b.jpg": ["a red bus and a bus", "a bus by a man"]}
    report = Report.of(captions, references, scorers=[], further=[right], repeatable="a")
    assert report.summary["share that repeats"] == pytest.approx(1 / 3)
    assert report.summary["share of references that repeat"] == pytest.approx(1 / 5)
    lines = report.table().splitlines()
    assert lines == [
        "right  1.0000  (1.0000 to 1.0000)",
        "95 % intervals; 3 images, 3 distinct captions, 8 distinct words, 4.0 a caption",
        "33.3% of the captions repeat a content word, and 20.0% of people's",
        "frequent words said rarely or never: none",
    ]


def test_frequent_words_that_captions_hardly_say_are_named() -> None:
    references = {n: ["a gun", "a gun, a cable"] if n < 5 else ["a cable"] for n in range(40)}
    references |= {n: ["a blue bag", "a bag", "a pen"] for n in range(40, 44)}
    captions = dict.fromkeys(references, "a cable")
    report = Report.of(captions | {0: "a gun"}, references, repeatable=["a"])
    # Not "blue" and "pen": one person of three wrote them.
    assert report.omitted == {"gun": (5, 1), "bag": (4, 0)}
    assert report.as_json()["omitted words"] == report.omitted
    assert report.table().splitlines()[-1] == (
        "frequent words said rarely or never: gun (in 5 of 44, said 1 time), "
        "bag (in 4 of 44, said 0 times)"
    )


def test_the_files_have_scores_intervals_and_images(tmp_path: Path) -> None:
    report = Report.of(CAPTIONS, REFERENCES)
    report.write(tmp_path, {"name": "toy", "split": "val"})
    scores = json.loads((tmp_path / "scores.json").read_text())
    full = json.loads((tmp_path / "report.json").read_text())
    captions = json.loads((tmp_path / "captions.json").read_text())
    assert scores == report.summary == report.corpus | full["statistics"]
    assert {name: entry["value"] for name, entry in full["scores"].items()} == report.corpus
    assert full["scores"]["CIDEr"]["low"] == report.estimates["CIDEr"].low
    shown = [{key: entry[key] for key in ("image_id", "caption")} for entry in full["images"]]
    assert shown == captions == [{"image_id": k, "caption": v} for k, v in CAPTIONS.items()]
    assert [entry["CIDEr"] for entry in full["images"]] == report.images["CIDEr"].tolist()
