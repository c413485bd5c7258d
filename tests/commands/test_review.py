"""`captioning review`: captions in the order of doubt, as lines, JSON, a table and a page."""

import csv
import json
from pathlib import Path

import pytest

from captioning.commands import main
from captioning.data.readers import Coco
from captioning.shapes import write_shapes

COLOURS = {"red": "blue", "blue": "red", "green": "yellow", "yellow": "green"}
WRONG = 3  # photos, the first ones


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of drawn scenes and their captions, some of which name other colours."""
    folder = tmp_path_factory.mktemp("review")
    write_shapes(folder / "shapes", train=16, val=1, test=1, pixels=128, progress=False)
    records = Coco(folder / "shapes").read().records("train")
    coloured = [record for record in records if COLOURS.keys() & set(record.captions[0].split())]
    rows = [("file_name", "caption")]
    for number, record in enumerate(coloured):
        words = record.captions[0].split()
        if number < WRONG:
            words = [COLOURS.get(word, word) for word in words]
        rows.append((str(record.image.relative_to(folder)), " ".join(words)))
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder / "captions.csv"


def review(captions: Path, *options: str) -> int:
    return main(["review", str(captions), "--model", "shapes", "--device", "cpu", *options])


def test_captions_with_wrong_colours_come_first_and_mostly_colours_are_doubtful(
    captions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert review(captions, "--json", "--at-most", str(WRONG)) == 0
    reviews = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with captions.open(newline="") as file:
        wrong = [row["caption"] for row in list(csv.DictReader(file))[:WRONG]]
    assert sorted(each["caption"] for each in reviews) == sorted(wrong)
    doubtful = [word["word"] for each in reviews for word in each["words"] if "instead" in word]
    coloured = [word for word in doubtful if word in COLOURS]
    assert len(coloured) > len(doubtful) / 2


def test_a_table_has_the_captions_of_the_lines(
    captions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert review(captions, "--csv", str(tmp_path / "reviews.csv"), "--doubt", "0") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    with (tmp_path / "reviews.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == [photo for _, photo, *_ in lines]
    chances = [float(row["right"]) for row in rows]
    assert chances == sorted(chances)
    assert not any(row["doubtful"] for row in rows)


def test_results_are_reviewed_with_the_photos_of_their_data_set(
    captions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = captions.parent / "shapes"
    records = Coco(data).read().records("train")[:2]
    results = [
        {"image_id": record.image_id, "caption": "a red circle and a zeppelin"}
        for record in records
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    page = tmp_path / "review.html"
    assert review(tmp_path / "results.json", "--photos", str(data), "--html", str(page)) == 0
    assert "Infinity" not in page.read_text()  # unknown words have no probability
    assert "Review of results.json" in page.read_text()
    assert "2 captions, the most doubtful first." in page.read_text()
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("\t")[1] for line in lines} == {str(record.image) for record in records}
    assert all(line.endswith("not judged: zeppelin") for line in lines)


@pytest.mark.integration
def test_check_prints_the_ten_captions_that_fit_least(
    captions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(captions.parent / "shapes"), "--review"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines() if "\t" in line]
    assert len(lines) == 10
    chances = [float(chance) for chance, *_ in lines]
    assert chances == sorted(chances)
