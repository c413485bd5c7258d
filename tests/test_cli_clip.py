"""`--clip`: the scores that look at the photos, by the commands that have them."""

import json
from pathlib import Path

import pytest

from captioning.cli import main
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.metrics.clip_score import Clip, ClipScore
from captioning.metrics.scores import Scores
from tests.clip import save_clip

pytest.importorskip("open_clip", reason="the extra clip is not installed")

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]

CAPTIONS = ["a red circle", "a blue square above a star"]


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
        for record, caption in zip(records, CAPTIONS, strict=True)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    references = shapes_data / "annotations/captions_test.json"
    return ["score", str(tmp_path / "results.json"), str(references)]


def scores_of(captions: list[str], records: list[Record], weights: Path) -> Scores:
    photos = {record.image_id: record.image for record in records}
    references = [record.captions for record in records]
    return ClipScore(Clip(weights), photos)(captions, references, [*photos])


def test_score_finds_the_photos_by_their_names(
    arguments: list[str], records: list[Record], weights: Path, capsys: Capture
) -> None:
    folder = str(records[0].image.parent)
    options = ["--clip", "--photos", folder, "--clip-weights", str(weights), "--json", "-"]
    assert main([*arguments, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = scores_of(CAPTIONS, records, weights)
    assert list(report["scores"])[-2:] == ["CLIPScore", "RefCLIPScore"]
    for name, values in expected.images.items():
        assert [image[name] for image in report["images"]] == pytest.approx(values.tolist())
        assert report["scores"][name]["value"] == pytest.approx(values.mean())


def test_evaluate_knows_where_the_photos_are(
    shapes_data: Path, records: list[Record], weights: Path, checkpoint: Path, tmp_path: Path
) -> None:
    command = ["evaluate", "--data", str(shapes_data), "--model", str(checkpoint)]
    options = ["--split", "test", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert main([*command, *options, "--clip", "--clip-weights", str(weights)]) == 0
    results = json.loads((tmp_path / "out/captions.json").read_text())
    assert [result["image_id"] for result in results] == [record.image_id for record in records]
    captions = [result["caption"] for result in results]
    expected = scores_of(captions, records, weights).corpus
    found = json.loads((tmp_path / "out/scores.json").read_text())
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_score_refuses_larger_photos_than_asked_for(
    arguments: list[str], records: list[Record], weights: Path, capsys: Capture
) -> None:
    options = ["--clip", "--photos", str(records[0].image.parent), "--clip-weights", str(weights)]
    assert main([*arguments, *options, "--max-megapixels", "0.001"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"captioning: {records[0].image}: ")
    assert line.endswith("scale the photo down, or raise max-megapixels")


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (["--clip"], 2, "--clip needs the photos; give their folder by --photos"),
        (["--photos", "."], 2, "--photos is for --clip; give --clip too, or omit --photos"),
        (
            ["--clip-weights", "."],
            2,
            "--clip-weights is for --clip; give --clip too, or omit --clip-",
        ),
        (["--clip", "--photos", "nowhere"], 1, "nowhere: no such folder; give the folder of the"),
        (["--clip", "--photos", "."], 1, ".jpg: no such photo (2 of 2 are missing); check"),
    ],
)
def test_what_is_missing_is_one_line(
    arguments: list[str],
    options: list[str],
    code: int,
    expected: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *options]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line
