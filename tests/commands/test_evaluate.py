"""`captioning evaluate`, `ground`, `calibrate`, `check` and `shapes`: models and data sets."""

import json
from pathlib import Path

import pytest
import torch
import wandb
from PIL import Image
from pycocoevalcap.bleu.bleu import Bleu
from pycocotools.coco import COCO

from captioning.commands import main
from captioning.data.readers import Coco
from captioning.data.tokens import tokenize
from captioning.evaluation.grounding import Lexicon, categories
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]

# Words that an untrained model is sure to write, as names of the shapes that are there.
NAMED = {"circle": ["a", "the"], "square": ["is"], "star": ["red", "green", "and", "large"]}


@pytest.fixture
def evaluated(checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture) -> Path:
    """What `captioning evaluate` leaves behind for the four scenes of the validation split."""
    data = ["--data", str(shapes_data), "--out", str(tmp_path / "scores")]
    assert main(["evaluate", "--model", str(checkpoint), *data, "--device", "cpu"]) == 0
    return tmp_path / "scores"


def test_evaluate_writes_captions_that_coco_tools_read(evaluated: Path, shapes_data: Path) -> None:
    truth = COCO(shapes_data / "annotations/captions_val.json")
    results = truth.loadRes(str(evaluated / "captions.json"))
    assert sorted(results.getImgIds()) == sorted(truth.getImgIds())


def test_the_scores_are_those_of_the_coco_evaluation(evaluated: Path, shapes_data: Path) -> None:
    captions = {
        entry["image_id"]: [" ".join(tokenize(entry["caption"]))]
        for entry in json.loads((evaluated / "captions.json").read_text())
    }
    references = {
        record.image_id: [" ".join(tokenize(caption)) for caption in record.captions]
        for record in Coco(shapes_data).read("val")
    }
    theirs, _ = Bleu(4).compute_score(references, captions, verbose=0)
    scores = json.loads((evaluated / "scores.json").read_text())
    assert [scores[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx(theirs)
    assert theirs[0] > 0


def test_evaluate_prints_the_scores_and_where_they_are(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    model, folder = ["--model", str(checkpoint)], tmp_path / "scores"
    data = ["--data", str(shapes_data), "--split", "test", "--limit", "1"]
    assert main(["evaluate", *model, *data, "--out", str(folder)]) == 0
    printed = capsys.readouterr()
    lines, errors = printed.out.splitlines(), printed.err.splitlines()
    assert lines[0].startswith("BLEU-1")
    assert lines[-1] == str(folder)
    assert len(json.loads((folder / "captions.json").read_text())) == 1
    [note] = errors
    assert note.startswith("captioning: CIDEr of one image is always 0")


def test_check_ends_with_0_for_a_sound_data_set_only(
    shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["check", str(shapes_data)]) == 0
    (tmp_path / "captions.csv").write_text("file_name,caption\ngone.jpg,a dog\n")
    assert main(["check", str(tmp_path)]) == 1
    assert "gone.jpg" in capsys.readouterr().out


def test_shapes_draws_a_data_set_that_check_finds_sound(tmp_path: Path, capsys: Capture) -> None:
    few = ["--train", "2", "--val", "1", "--test", "1", "--pixels", "32"]
    assert main(["shapes", str(tmp_path / "shapes"), *few]) == 0
    assert main(["check", str(tmp_path / "shapes")]) == 0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of which two columns may be the captions, and its photos elsewhere."""
    (tmp_path / "data").mkdir()
    (tmp_path / "photos").mkdir()
    rows = "a.png;a circle;a red circle above a blue square\nb.png;a star;a small green star\n"
    (tmp_path / "data/mine.csv").write_text(f"Photo;Title;Words\n{rows}", encoding="utf-8-sig")
    for shade, name in enumerate(("a.png", "b.png")):
        Image.new("RGB", (40, 40), (shade, 90, 200)).save(tmp_path / "photos" / name)
    return tmp_path / "data"


def test_check_takes_the_photos_folder_and_the_captions_column(
    table: Path, capsys: Capture
) -> None:
    assert "columns are Photo, Title, Words" in refusal(["check", str(table)], capsys)
    options = ["--images", str(table.parent / "photos"), "--caption-column", "Title"]
    assert main(["check", str(table), *options]) == 0
    assert "No problems found" in capsys.readouterr().out


def arguments(checkpoint: Path, data: Path, folder: Path) -> list[str]:
    options = ["--model", str(checkpoint), "--data", str(data), "--out", str(folder)]
    return ["ground", *options, "--split", "train", "--device", "cpu"]


@pytest.mark.integration
def test_scores_table_and_pictures_are_in_wandbs_run(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"categories": NAMED}))
    folder = tmp_path / "out"
    given = [*arguments(checkpoint, shapes_data, folder), "--words", str(words), "--wandb"]
    assert main(given) == 0
    wandb.teardown()  # wait for the process that writes the log
    report = json.loads((folder / "grounding.json").read_text())
    [log] = folder.glob("wandb/offline-run-*/*.wandb")
    logged = log.read_bytes()
    assert b"grounding/mass in box" in logged
    assert repr(report["all"]["mass in box"]["value"]).encode() in logged
    for name in ("scores", "best", "worst"):
        [kept] = folder.glob(f"wandb/offline-run-*/files/media/images/grounding/{name}_*.png")
        assert kept.read_bytes() == (folder / f"{name}.png").read_bytes()


def test_several_maps_of_given_captions_are_one_table(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    given = [*arguments(checkpoint, shapes_data, tmp_path), "--references", "--limit", "1"]
    assert main([*given, "--map", "gradient", "--map", "occlusion"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["map", "gradient", "occlusion"]
    found = json.loads((tmp_path / "maps.json").read_text())
    assert list(found) == ["gradient", "occlusion"]
    for name, report in found.items():
        assert (report["map"], report["captions"]) == (name, "references")
        assert report["milliseconds"] > 0
        assert {"deletion", "insertion", "insertion, Gaussian"} < report["all"].keys()
    records = Coco(shapes_data).read("train")
    references = [caption for record in records[:1] for caption in record.captions]
    lexicon = Lexicon.of(categories(records))
    named = sum(len(lexicon.mentions(tokenize(caption))) for caption in references)
    report = found["occlusion"]
    assert report["all"]["mentions"] + report["unknown"] == named
    assert json.loads((tmp_path / "grounding.json").read_text())["map"] == "gradient"


def test_without_a_choice_the_models_own_map_is_tested(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["captioner"]["default_map"] = "evidence"
    torch.save(content, tmp_path / "model.ckpt")
    given = arguments(tmp_path / "model.ckpt", shapes_data, tmp_path / "out")
    assert main([*given, "--references", "--limit", "1"]) == 0
    assert json.loads((tmp_path / "out/grounding.json").read_text())["map"] == "evidence"


def test_a_data_set_without_boxes_is_refused(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "data/annotations").mkdir(parents=True)
    for name in ("train", "annotations/captions_train.json"):
        (tmp_path / "data" / name).symlink_to(shapes_data / name)
    error = refusal(arguments(checkpoint, tmp_path / "data", tmp_path / "out"), capsys)
    assert "split 'train' has no boxes; give a data set with instances_*.json" in error


def test_evaluate_grounds_where_there_are_boxes(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    given = arguments(checkpoint, shapes_data, tmp_path)
    assert main(["evaluate", *given[1:], "--limit", "2"]) == 0
    assert "CHAIR-s" in capsys.readouterr().out
    assert json.loads((tmp_path / "grounding.json").read_text())["images"] == 2
