"""`captioning compare`, and the formats of captions and references that `score` reads too."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from captioning.commands import main
from captioning.evaluation.report import Report
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]

REFERENCES = {
    "1000_a": ["a red bus on a street", "a bus drives"],
    "1001_b": ["two dogs run on grass", "two brown dogs run"],
    "1002_c": ["a cat sleeps on a chair", "a cat on a red chair"],
}

GOOD = {"1000_a": "a red bus drives", "1001_b": "two dogs run", "1002_c": "a cat on a chair"}

BAD = {"1000_a": "a green bus flies", "1001_b": "some dogs", "1002_c": "a chair"}


def written(path: Path, value: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def results(captions: dict[str, str]) -> list[dict[str, str]]:
    return [{"image_id": image, "caption": caption} for image, caption in captions.items()]


def lines(captions: dict[str, str]) -> str:
    """Lines of JSON as `captioning caption` writes them."""
    entries = [
        {"image": f"photos/{image}.jpg", "caption": text, "score": -1.0, "words": []}
        for image, text in captions.items()
    ]
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def coco(captions: dict[str, list[str]]) -> dict[str, Any]:
    numbered = list(enumerate(captions.items(), start=1))
    return {
        "images": [{"id": number, "file_name": f"{name}.jpg"} for number, (name, _) in numbered],
        "annotations": [
            {"id": 10 * number + place, "image_id": number, "caption": text}
            for number, (_, texts) in numbered
            for place, text in enumerate(texts)
        ],
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Captions of two systems, and Flickr8k's file of references without its photos."""
    text = "".join(
        f"{image}.jpg#{number}\t{caption} .\n"
        for image, captions in REFERENCES.items()
        for number, caption in enumerate(captions)
    )
    return [
        written(tmp_path / "bad.json", results(BAD)),
        written(tmp_path / "good.json", results(GOOD)),
        written(tmp_path / "flickr8k" / "Flickr8k.token.txt", text),
    ]


def test_the_table_has_the_scores_of_both_systems(files: list[str], capsys: Capture) -> None:
    assert main(["compare", *files, "--format", "csv"]) == 0
    found = {row["score"]: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    bad, good = (Report.of(captions, REFERENCES).corpus for captions in (BAD, GOOD))
    assert list(found) == list(bad)
    for name, row in found.items():
        assert float(row["A"]) == pytest.approx(bad[name])
        assert float(row["B"]) == pytest.approx(good[name])
        assert float(row["low"]) <= float(row["difference"]) <= float(row["high"])
    # The fewest images that differ: two of the eight ways to swap are as extreme.
    assert float(found["ROUGE-L"]["p randomisation"]) == pytest.approx(2 / 8, abs=0.02)


def test_captions_are_read_in_every_form(files: list[str], tmp_path: Path, capsys: Capture) -> None:
    entries = lines(GOOD).splitlines(keepends=True)
    error = json.dumps({"image": "photos/broken.jpg", "error": "not an image"}) + "\n"
    table = "".join(f"photos/{image}.jpg,{text},\n" for image, text in GOOD.items())
    ids = "".join(f"{image}\t{text}\n" for image, text in GOOD.items())
    written(tmp_path / "shards" / "captions-00000.jsonl", entries[0] + error)
    written(tmp_path / "shards" / "captions-00001.jsonl", entries[1] + entries[2])
    written(tmp_path / "shards" / "manifest.json", {})
    written(tmp_path / "run" / "evaluation-test" / "captions.json", results(GOOD))
    forms = [
        files[1],
        written(tmp_path / "lines.jsonl", lines(GOOD) + error),
        written(tmp_path / "printed.json", lines(GOOD)),
        written(tmp_path / "table.csv", f"file_name,caption,confidence\n{table}"),
        written(tmp_path / "ids.tsv", f"image_id\tcaption\n{ids}"),
        str(tmp_path / "shards"),
        str(tmp_path / "run" / "evaluation-test"),
    ]
    printed = []
    for form in forms:
        assert main(["score", form, files[2]]) == 0, form
        printed.append(capsys.readouterr().out)
    assert set(printed) == {printed[0]}


def test_references_are_read_in_every_format_without_photos(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    rows = [(image, text) for image, texts in REFERENCES.items() for text in texts]
    table = "file_name,caption\n" + "".join(f"{image}.jpg,{text}\n" for image, text in rows)
    karpathy = [
        {
            "imgid": number,
            "filename": f"{image}.jpg",
            "split": "test",
            "sentences": [{"raw": text} for text in texts],
        }
        for number, (image, texts) in enumerate(REFERENCES.items())
    ]
    entities = tmp_path / "entities"
    (entities / "Annotations").mkdir(parents=True)
    written(entities / "test.txt", "\n".join(REFERENCES))
    for image, texts in REFERENCES.items():
        written(entities / "Sentences" / f"{image}.txt", "\n".join(texts))
    forms = [
        files[2],
        str(Path(files[2]).parent),
        written(tmp_path / "captions.csv", table),
        written(tmp_path / "other.tsv", table.replace(",", "\t")),
        written(
            tmp_path / "blip.json", [{"image": f"{image}.jpg", "caption": t} for image, t in rows]
        ),
        written(tmp_path / "coco.json", coco(REFERENCES)),
        written(tmp_path / "dataset_flickr8k.json", {"images": karpathy}),
        str(Path(written(tmp_path / "set" / "captions.csv", table)).parent),
        str(Path(written(tmp_path / "k" / "dataset_x.json", {"images": karpathy})).parent),
        str(entities),
    ]
    written(tmp_path / "coco" / "annotations" / "captions_val.json", coco(REFERENCES))
    shards = written(tmp_path / "shards" / "captions-00000.jsonl", lines(GOOD))
    printed = []
    for form in [*forms, str(tmp_path / "coco")]:
        assert main(["score", str(Path(shards).parent), form]) == 0, form
        printed.append(capsys.readouterr())
    assert {each.err for each in printed} == {""}
    assert {each.out for each in printed} == {printed[0].out}


def test_a_split_s_references_count_alone(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    wrong = {image: ["nothing of the kind"] for image in REFERENCES}
    for split, captions in (("train", wrong), ("test", REFERENCES)):
        written(tmp_path / "set" / "annotations" / f"captions_{split}.json", coco(captions))
    shards = written(tmp_path / "lines.jsonl", lines(GOOD))
    assert main(["score", shards, str(tmp_path / "set")]) == 1
    assert "image 1 is in two splits; name one by --split" in capsys.readouterr().err
    assert main(["score", shards, str(tmp_path / "set"), "--split", "test"]) == 0
    own = capsys.readouterr().out
    assert main(["score", files[1], files[2]]) == 0
    assert capsys.readouterr().out == own
    assert main(["score", files[1], files[2], "--split", "test"]) == 1
    assert "Flickr8k.token.txt has no split 'test'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["score", "compare"])
def test_no_torch_is_imported(files: list[str], command: str) -> None:
    arguments = [command, *(files if command == "compare" else files[1:])]
    program = (
        "import sys; import captioning.metrics; from captioning.commands import main\n"
        f"assert main({arguments}) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("good.json", results({**GOOD, "1003_d": "x"}), "1 of 4 images have no caption in"),
        ("good.json", results(GOOD)[:2], "good.json: no caption of image 1002_c, which the other"),
        ("bad.json", results(BAD)[1:], "bad.json: no caption of image 1000_a, which the other"),
        ("bad.json", lines(BAD) + "{", "bad.json: line 4: Expecting"),
        ("bad.json", lines(BAD) * 2, "has two captions; leave one"),
        ("flickr8k/Flickr8k.token.txt", "", "Flickr8k.token.txt: no captions; add rows"),
        ("flickr8k/Flickr8k.token.txt", "a.jpg#0\ta\nb\n", "line 2: 1 val"),
        ("run", None, "no such file"),
    ],
)
def test_captions_that_cannot_be_compared_are_one_line(
    files: list[str], tmp_path: Path, name: str, content: Any, expected: str, capsys: Capture
) -> None:
    if content is None:
        files[0] = str(tmp_path / name)
    else:
        written(tmp_path / name, content)
    assert expected in refusal(["compare", *files], capsys)
