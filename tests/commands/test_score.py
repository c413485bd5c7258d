"""`captioning score` and `compare`: captions and references in files of every form."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import captioning
from captioning.commands import main
from captioning.data.readers import Coco
from captioning.evaluation.report import Report
from captioning.metrics.clip_score import ClipScore
from tests.clip import save_clip

Capture = pytest.CaptureFixture[str]

REFERENCES = {
    "1000_a": ["a red bus on a street", "a bus drives"],
    "1001_b": ["two dogs run on grass", "two brown dogs run"],
    "1002_c": ["a cat sleeps on a chair", "a cat on a red chair"],
}
ROWS = [(image, text) for image, texts in REFERENCES.items() for text in texts]

GOOD = {"1000_a": "a bus drives", "1001_b": "two dogs run", "1002_c": "a cat on a chair"}

BAD = {"1000_a": "a green bus flies", "1001_b": "some dogs", "1002_c": "a chair"}


def written(path: Path, value: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def results(captions: dict[Any, str]) -> list[dict[str, Any]]:
    return [{"image_id": image, "caption": caption} for image, caption in captions.items()]


def lines(captions: dict[str, str]) -> str:
    """Lines of JSON as `captioning caption` writes them."""
    entries = [
        {"image": f"photos/{image}.jpg", "caption": text, "score": -1.0, "words": []}
        for image, text in captions.items()
    ]
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def coco(captions: dict[str, list[str]], first: int = 0) -> dict[str, Any]:
    images = [{"id": n, "file_name": f"{name}.jpg"} for n, name in enumerate(captions, first)]
    annotations = [
        {"image_id": n, "caption": text}
        for n, texts in enumerate(captions.values(), first)
        for text in texts
    ]
    return {"images": images, "annotations": annotations}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Captions of two systems, and Flickr8k's file of references without its photos."""
    text = "".join(f"{image}.jpg#{number}\t{text} .\n" for number, (image, text) in enumerate(ROWS))
    return [
        written(tmp_path / "bad.json", results(BAD)),
        written(tmp_path / "good.json", results(GOOD)),
        written(tmp_path / "flickr8k" / "Flickr8k.token.txt", text),
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [("training", [text for _, text in ROWS]), ("tokenizer", "characters")],
)
def test_the_scores_are_those_of_the_report(
    files: list[str], tmp_path: Path, option: str, value: Any, capsys: Capture
) -> None:
    some = dict([*GOOD.items()][:2])  # the other image has no result
    report = Report.of(some, REFERENCES, **{option: value})
    given = [f"--{option}", files[2] if option == "training" else value]
    command = ["score", written(tmp_path / "some.json", results(some)), files[2], *given]
    assert main([*command, "--json", str(tmp_path / "report.json")]) == 0
    assert json.loads((tmp_path / "report.json").read_text()) == report.as_json()
    note = f"1 of the 3 images in {files[2]} have no result; the scores are of the other 2"
    assert capsys.readouterr() == (f"{report.table()}\n", f"captioning: {note}\n")
    assert main([*command, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == report.as_json()


def test_saved_document_frequencies_are_those_that_cider_goes_by(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    frequencies = str(tmp_path / "frequencies.npz")
    command = [
        "score",
        written(tmp_path / "one.json", results(dict([*GOOD.items()][:1]))),
        files[2],
    ]
    assert main([*command, "--save-frequencies", frequencies]) == 0
    assert "CIDEr of one image is always 0" in capsys.readouterr().err
    assert main([*command, "--frequencies", frequencies]) == 0
    shown = capsys.readouterr()
    assert f"{Report.of(GOOD, REFERENCES).images['CIDEr'][0]:.4f}" in shown.out
    assert "CIDEr of one image" not in shown.err


def test_the_comparison_has_the_scores_of_both_systems(files: list[str], capsys: Capture) -> None:
    comparison = captioning.compare(*files)
    table = capsys.readouterr().out
    bad, good = (Report.of(captions, REFERENCES).corpus for captions in (BAD, GOOD))
    assert list(comparison) == list(bad)
    for name, difference in comparison.items():
        assert difference.first == pytest.approx(bad[name])
        assert difference.second == pytest.approx(good[name])
        low, high = difference.interval
        assert low <= difference.second - difference.first <= high
        assert 0 < difference.p_value <= 1
        assert name in table


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
        written(tmp_path / "table.txt", f"file_name,caption,confidence\n{table}"),
        written(tmp_path / "captions.txt", "\r\n".join([*GOOD.values(), ""])),
        written(tmp_path / "ids.tsv", f"image_id\tcaption\n{ids}"),
        str(tmp_path / "shards"),
        str(tmp_path / "run" / "evaluation-test"),
    ]
    written(tmp_path / "pairs.csv", f"image,prediction,note\n{table}")
    commands = [["score", form, files[2]] for form in forms]
    commands += [["score", str(tmp_path / "pairs.csv"), files[2], "--caption-column", "prediction"]]
    printed = []
    for command in commands:
        assert main(command) == 0, command
        printed.append(capsys.readouterr().out)
    assert set(printed) == {printed[0]}


def test_references_are_read_in_every_format_without_photos(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    table = "file_name,caption\n" + "".join(f"{image}.jpg,{text}\n" for image, text in ROWS)
    blip = [{"image": f"{image}.jpg", "caption": text} for image, text in ROWS]
    karpathy = [
        {
            "imgid": number,
            "filename": f"{image}.jpg",
            "split": "test",
            "sentences": [{"raw": text} for text in texts],
        }
        for number, (image, texts) in enumerate(REFERENCES.items())
    ]
    entities = {f"Sentences/{i}.txt": "\n".join(texts) for i, texts in REFERENCES.items()}
    for name, content in (entities | {"test.txt": "\n".join(REFERENCES)}).items():
        written(tmp_path / "entities" / name, content)
    (tmp_path / "entities/Annotations").mkdir()
    written(tmp_path / "coco/annotations/captions_val.json", coco(REFERENCES))
    forms = [
        *(files[2], str(Path(files[2]).parent)),
        written(tmp_path / "set/captions.csv", table),
        written(tmp_path / "other.tsv", table.replace(",", "\t")),
        written(tmp_path / "blip.json", blip),
        written(tmp_path / "coco.json", coco(REFERENCES)),
        written(tmp_path / "k/dataset_flickr8k.json", {"images": karpathy}),
        *(str(tmp_path / folder) for folder in ("set", "k", "entities", "coco")),
    ]
    captions = written(tmp_path / "lines.jsonl", lines(GOOD))
    printed = set()
    for form in forms:
        assert main(["score", captions, form]) == 0, form
        printed.add(capsys.readouterr())
    assert [each.err for each in printed] == [""]


def test_a_split_s_references_count_alone(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    wrong = {image: ["nothing of the kind"] for image in REFERENCES}
    for split, captions in (("train", wrong), ("test", REFERENCES)):
        written(tmp_path / "set" / "annotations" / f"captions_{split}.json", coco(captions))
    captions_file = written(tmp_path / "lines.jsonl", lines(GOOD))
    assert main(["score", captions_file, str(tmp_path / "set"), "--split", "test"]) == 0
    own = capsys.readouterr().out
    assert main(["score", *files[1:]]) == 0
    assert capsys.readouterr().out == own


@pytest.mark.parametrize(
    ("caption", "is_told"),
    [("一只狗在公园里跑", True), ("หมาวิ่ง", True), ("une ville, 東京", False)],
)
def test_captions_without_spaces_are_scored_with_a_hint(
    caption: str, is_told: bool, tmp_path: Path, capsys: Capture
) -> None:
    found = written(tmp_path / "found.json", results({0: caption}))
    references = written(tmp_path / "references.json", coco({"1.jpg": [caption]}))
    for option in ([], ["--tokenizer", "characters"]):
        assert main(["score", found, references, *option]) == 0
        lines = capsys.readouterr().err.splitlines()
        hints = [line for line in lines if "--tokenizer characters" in line]
        assert len(hints) == (is_told and not option)


@pytest.mark.integration
def test_help_score_and_compare_need_no_torch(files: list[str]) -> None:
    program = f"""if True:
        import sys
        from captioning.commands import main
        for command in ("caption", "train", "evaluate"):
            assert main([command, "-h"]) == 0
        assert not {{"torch", "numpy"}} & sys.modules.keys()
        import captioning.metrics
        assert main({["score", *files[1:]]}) == main({["compare", *files]}) == 0
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


@pytest.mark.integration
def test_score_finds_the_photos_by_their_names(
    shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    records, weights = Coco(shapes_data).read().records("test"), save_clip(tmp_path / "weights")
    photos = {record.image_id: record.image for record in records}
    said = dict(zip(photos, ["a red circle", "a blue square above a star"], strict=True))
    found = written(tmp_path / "results.json", results(said))
    options = ["--clip", "--photos", str(shapes_data / "test"), "--clip-weights", str(weights)]
    references = str(shapes_data / "annotations/captions_test.json")
    assert main(["score", found, references, *options, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    scores = ClipScore(photos, weights)
    expected = scores([*said.values()], [record.captions for record in records], [*photos])
    assert list(report["scores"])[-2:] == ["CLIPScore", "RefCLIPScore"]
    for name, values in expected.images.items():
        assert [image[name] for image in report["images"]] == pytest.approx(values.tolist())
        assert report["scores"][name]["value"] == pytest.approx(values.mean())
