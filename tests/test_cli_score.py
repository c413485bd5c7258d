import json
import math
from pathlib import Path
from typing import Any

import pytest

from captioning.cli import main
from captioning.data.results import MAX_RESULTS_BYTES
from captioning.evaluation.report import Report
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]

CAPTIONS = {1: "a red bus", 2: "two brown dogs run"}
REFERENCES = {1: ["A red bus.", "a bus drives"], 2: ["two dogs run on grass"], 3: ["a cat", " "]}


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


def test_captions_of_scripts_without_spaces_are_scored_by_characters(
    tmp_path: Path, capsys: Capture
) -> None:
    found, people = results({0: "黑狗在跑"}), [{"image_id": 0, "id": 0, "caption": "黑狗在跑步"}]
    files = [
        written(tmp_path / "results.json", found),
        written(tmp_path / "references.json", {"images": [{"id": 0}], "annotations": people}),
    ]
    assert main(["score", *files, "--tokenizer", "characters", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["scores"]["BLEU-1"]["value"] == pytest.approx(math.exp(1 - 5 / 4))


def test_a_dash_prints_the_report_in_place_of_the_table(files: list[str], capsys: Capture) -> None:
    assert main(["score", *files, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == Report.of(CAPTIONS, REFERENCES).as_json()
    assert not Path("-").exists()


def test_images_without_a_result_are_counted_and_left_out(
    files: list[str], capsys: Capture
) -> None:
    assert main(["score", *files]) == 0
    expected = f"captioning: 1 of the 3 images in {files[1]} have no result; the scores are of the "
    assert capsys.readouterr().err == f"{expected}other 2\n"


def test_karpathys_format_gives_the_same(files: list[str], tmp_path: Path, capsys: Capture) -> None:
    images = [
        {"cocoid": image, "split": "test", "sentences": [{"raw": caption} for caption in captions]}
        for image, captions in REFERENCES.items()
    ]
    main(["score", *files])
    expected = capsys.readouterr().out
    karpathy = written(tmp_path / "dataset_coco.json", {"images": images})
    assert main(["score", files[0], karpathy]) == 0
    assert capsys.readouterr().out == expected


def test_training_captions_are_distinguished_from_novel_ones(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert main(["score", *files, "--training", files[1]]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["share", "not", "in", "training", "0.5000"]


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
    ("content", "expected"),
    [
        ("captions", "results.json: not a readable JSON file"),
        ({"annotations": []}, "results.json: not a list; expected COCO's results format"),
        ([], "results.json: no captions; expected COCO's results format"),
        (["a cat"], "results.json: 'a cat' is not an object; expected COCO's results format"),
        ([{"image_id": 1}], "results.json: {'image_id': 1} has no 'caption'; expected"),
        ([{"image_id": 1, "caption": 5}], "results.json: 'caption' is 5, not text; expected"),
        (results(CAPTIONS) + results({2: "a"}), "results.json: image 2 has two captions; leave"),
        (results({1: "a", 9: "b", 8: "c"}), "2 of 3 images have no caption in"),
    ],
    ids=str,
)
def test_results_that_cannot_be_scored_are_one_line(
    files: list[str], content: Any, expected: str, capsys: Capture
) -> None:
    written(Path(files[0]), content)
    assert expected in refusal(["score", *files], capsys)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "references.json: not a readable JSON file"),
        ([1], "references.json: [1] is not an object; expected COCO's annotations"),
        ({}, "references.json: {} has no 'images'; expected COCO's annotations"),
        ({"annotations": []}, "references.json: no captions; expected COCO's annotations"),
        ({"annotations": [{"image_id": 1}]}, "references.json: {'image_id': 1} has no 'caption'"),
        ({"images": [5]}, "references.json: 5 is not an object"),
    ],
    ids=str,
)
def test_references_that_are_none_are_one_line(
    files: list[str], content: Any, expected: str, capsys: Capture
) -> None:
    written(Path(files[1]), content)
    assert expected in refusal(["score", *files], capsys)


def test_more_captions_of_an_image_than_can_be_scored_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, references = tmp_path / "results.json", tmp_path / "references.json"
    results.write_text('[{"image_id": 1, "caption": "a dog"}]')
    annotations = [{"image_id": 1, "caption": "a dog"}] * 10_001
    references.write_text(json.dumps({"annotations": annotations}))
    error = refusal(["score", str(results), str(references)], capsys)
    assert "image 1 has more than 10,000 captions" in error


def test_a_file_of_results_that_is_too_large_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    with results.open("wb") as file:
        file.truncate(MAX_RESULTS_BYTES + 1)
    error = refusal(["score", str(results), str(results)], capsys)
    assert "results.json: more than 268,435,456 bytes" in error


def test_cider_of_one_image_comes_with_a_note(files: list[str], capsys: Capture) -> None:
    Path(files[0]).write_text(json.dumps(results({1: "a red bus"})))
    assert main(["score", *files]) == 0
    assert "CIDEr of one image is always 0" in capsys.readouterr().err
    assert main(["score", *files, "--save-frequencies", f"{files[0]}.npz"]) == 0
    capsys.readouterr()
    assert main(["score", *files, "--frequencies", f"{files[0]}.npz"]) == 0
    assert "CIDEr of one image" not in capsys.readouterr().err
