"""`captioning score`: scores of captions from files, CLIPScore among them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from captioning.commands import main
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.evaluation.report import Report
from captioning.metrics.clip_score import ClipScore
from captioning.metrics.scores import Scores
from tests.clip import save_clip
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]

CAPTIONS = {1: "a red bus", 2: "two brown dogs run"}

REFERENCES = {1: ["A red bus.", "a bus drives"], 2: ["two dogs run on grass"], 3: ["a cat", " "]}

SAID = ["a red circle", "a blue square above a star"]


def written(path: Path, value: Any) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def results(captions: dict[int, str]) -> list[dict[str, Any]]:
    return [{"image_id": image, "caption": caption} for image, caption in captions.items()]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Results, and references in COCO's format, of which one image has no result."""
    annotations = [
        {"image_id": image, "id": 10 * image + number, "caption": caption}
        for image, captions in REFERENCES.items()
        for number, caption in enumerate(captions)
    ]
    coco = {"images": [{"id": image} for image in REFERENCES], "annotations": annotations}
    return [
        written(tmp_path / "results.json", results(CAPTIONS)),
        written(tmp_path / "references.json", coco),
    ]


def test_the_scores_are_those_of_the_report(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert main(["score", *files, "--json", str(tmp_path / "report.json")]) == 0
    report = Report.of(CAPTIONS, REFERENCES)
    assert json.loads((tmp_path / "report.json").read_text()) == report.as_json()
    assert capsys.readouterr().out.rstrip("\n") == report.table()


def test_scripts_without_spaces_are_scored_by_characters(tmp_path: Path, capsys: Capture) -> None:
    found, people = results({0: "黑狗在跑"}), [{"image_id": 0, "id": 0, "caption": "黑狗在跑步"}]
    files = [
        written(tmp_path / "results.json", found),
        written(tmp_path / "references.json", {"images": [{"id": 0}], "annotations": people}),
    ]
    assert main(["score", *files, "--tokenizer", "characters", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["scores"]["BLEU-1"]["value"] == pytest.approx(math.exp(1 - 5 / 4))


def test_images_without_a_result_are_counted_and_left_out(
    files: list[str], capsys: Capture
) -> None:
    assert main(["score", *files]) == 0
    expected = f"captioning: 1 of the 3 images in {files[1]} have no result; the scores are of the "
    assert capsys.readouterr().err == f"{expected}other 2\n"


def test_training_captions_are_distinguished_from_novel_ones(
    files: list[str], capsys: Capture
) -> None:
    assert main(["score", *files, "--training", files[1], "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["statistics"]["share not in training"] == 0.5


def test_saved_document_frequencies_are_those_that_cider_goes_by(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    frequencies = str(tmp_path / "frequencies.npz")
    assert main(["score", *files, "--save-frequencies", frequencies]) == 0
    own = capsys.readouterr().out
    assert main(["score", *files, "--frequencies", frequencies]) == 0
    of_three_images = capsys.readouterr().out
    some = {image: captions for image, captions in REFERENCES.items() if image in CAPTIONS}
    assert own != of_three_images
    value = Report.of(CAPTIONS | {3: "a tree"}, REFERENCES).images["CIDEr"][:2].mean()
    assert f"{value:.4f}" in of_three_images
    assert f"{Report.of(CAPTIONS, some).corpus['CIDEr']:.4f}" in own


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (0, "captions", "results.json: "),
        (0, {"annotations": []}, "results.json: line 1: {'annotations': []} has no 'image'"),
        (0, [{"image_id": 1}], "results.json: caption 1: {'image_id': 1} has no"),
        (0, results({1: "a", 9: "b", 8: "c"}), "2 of 3 images have no caption in"),
        (1, {}, "references.json: unknown layout; expected "),
        (1, {"annotations": [{"image_id": 1, "caption": 2}]}, "references.json: annotation 1: 'ca"),
    ],
    ids=str,
)
def test_files_that_cannot_be_scored_are_one_line(
    files: list[str], file: int, content: Any, expected: str, capsys: Capture
) -> None:
    written(Path(files[file]), content)
    assert expected in refusal(["score", *files], capsys)


def test_cider_of_one_image_comes_with_a_note(files: list[str], capsys: Capture) -> None:
    Path(files[0]).write_text(json.dumps(results({1: "a red bus"})))
    assert main(["score", *files]) == 0
    assert "CIDEr of one image is always 0" in capsys.readouterr().err
    assert main(["score", *files, "--save-frequencies", f"{files[0]}.npz"]) == 0
    capsys.readouterr()
    assert main(["score", *files, "--frequencies", f"{files[0]}.npz"]) == 0
    assert "CIDEr of one image" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "weights")


@pytest.fixture(scope="module")
def records(shapes_data: Path) -> list[Record]:
    return Coco(shapes_data).read("test")


@pytest.fixture
def arguments(shapes_data: Path, records: list[Record], tmp_path: Path) -> list[str]:
    """Results and references of `score`."""
    results = [
        {"image_id": record.image_id, "caption": caption}
        for record, caption in zip(records, SAID, strict=True)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    references = shapes_data / "annotations/captions_test.json"
    return ["score", str(tmp_path / "results.json"), str(references)]


def scores_of(captions: list[str], records: list[Record], weights: Path) -> Scores:
    photos = {record.image_id: record.image for record in records}
    references = [record.captions for record in records]
    return ClipScore(photos, weights)(captions, references, [*photos])


@pytest.mark.integration
def test_score_finds_the_photos_by_their_names(
    arguments: list[str], records: list[Record], weights: Path, capsys: Capture
) -> None:
    folder = str(records[0].image.parent)
    options = ["--clip", "--photos", folder, "--clip-weights", str(weights), "--json", "-"]
    assert main([*arguments, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = scores_of(SAID, records, weights)
    assert list(report["scores"])[-2:] == ["CLIPScore", "RefCLIPScore"]
    for name, values in expected.images.items():
        assert [image[name] for image in report["images"]] == pytest.approx(values.tolist())
        assert report["scores"][name]["value"] == pytest.approx(values.mean())
