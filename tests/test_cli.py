import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocoevalcap.bleu.bleu import Bleu
from pycocotools.coco import COCO

from captioning.captioner import load
from captioning.cli import main
from captioning.data.readers import Coco
from captioning.data.tokens import tokenize
from tests.conftest import draw_photos

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three photos, one in a folder of its own and of another's name."""
    draw_photos(tmp_path / "photos", "a.jpg", "b.png", "more/a.jpg")
    return tmp_path / "photos"


def output(capsys: Capture) -> tuple[list[str], list[str]]:
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


def test_each_photo_gives_one_line_of_path_and_caption(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    paths = [photos / "b.png", photos / "a.jpg"]
    assert main(["caption", *map(str, paths), "--model", str(checkpoint), "--device", "cpu"]) == 0
    captions = load(checkpoint)(paths)
    lines, errors = output(capsys)
    assert lines == [f"{path}\t{c.text}" for path, c in zip(paths, captions, strict=True)]
    assert not errors


def test_batches_give_the_same_as_photos_one_by_one(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    outputs = []
    for size in ("1", "2", "16"):
        main(["caption", str(photos), "--model", str(checkpoint), "--batch-size", size])
        outputs.append(output(capsys))
    assert outputs[0] == outputs[1] == outputs[2]


def test_json_lines_hold_words_probabilities_and_score(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    main(["caption", str(photos), "--model", str(checkpoint), "--json"])
    lines, _ = output(capsys)
    for line in map(json.loads, lines):
        assert set(line) == {"image", "caption", "score", "words"}
        assert line["caption"] == " ".join(entry["word"] for entry in line["words"])
        assert all(0 < entry["probability"] <= 1 for entry in line["words"])
        assert line["score"] < 0


def test_a_given_caption_is_read_instead_of_written(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    options = ["caption", str(photos), "--model", str(checkpoint)]
    assert main([*options, "--json", "--text", "A red circle."]) == 0
    lines, _ = output(capsys)
    for line in map(json.loads, lines):
        assert line["caption"] == "a red circle"
        assert all(len(entry["runners_up"]) == 3 for entry in line["words"])
    assert main([*options, "--text", "A red circle."]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert re.fullmatch(r"[^\t]+\ta 0\.\d\d red 0\.\d\d circle 0\.\d\d", line)
    assert main([*options, "--text", "a zebra"]) == 1
    assert "'a zebra': the model does not know 'zebra'" in capsys.readouterr().err


def test_overlays_are_one_picture_per_photo_also_for_equal_names(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "overlays"
    main(["caption", str(photos), "--model", str(checkpoint), "--overlay", str(folder)])
    assert {path.name for path in folder.iterdir()} == {"a.png", "b.png", "a-2.png"}
    for path in folder.iterdir():
        with Image.open(path) as picture:
            assert min(picture.size) > 100
    assert (folder / "a.png").read_bytes() != (folder / "a-2.png").read_bytes()


def test_another_map_is_drawn_and_a_page_compares_several(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos), "--model", str(checkpoint)]
    for name in ("attention", "occlusion"):
        assert main([*command, "--overlay", str(tmp_path / name), "--map", name]) == 0
    drawn = [(tmp_path / name / "a.png").read_bytes() for name in ("attention", "occlusion")]
    assert drawn[0] != drawn[1]
    both = ["--map", "grad-cam", "--map", "attention"]
    assert main([*command, "--html", str(tmp_path / "pages"), *both]) == 0
    page = (tmp_path / "pages" / "a.html").read_text()
    [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
    for caption in json.loads(shown)["captions"]:
        assert [each["map"] for each in caption["maps"]] == both[1::2]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([], "give --overlay, --gif or --html too"),
        (["--out", "shards"], "--map is for printed captions"),
    ],
)
def test_a_map_without_a_picture_is_refused(
    checkpoint: Path, photos: Path, capsys: Capture, given: list[str], error: str
) -> None:
    command = ["caption", str(photos), "--model", str(checkpoint), "--map", "occlusion"]
    assert main([*command, *given]) == 2
    assert error in capsys.readouterr().err


def test_pages_show_all_captions_of_a_photo_and_alternatives_to_each_word(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "pages"
    command = ["caption", str(photos), "--model", str(checkpoint), "--beam", "2", "--json"]
    assert main([*command, "--html", str(folder)]) == 0
    lines = [json.loads(line) for line in output(capsys)[0]]
    names = ["a.html", "b.html", "a-2.html"]
    assert {path.name for path in folder.iterdir()} == {*names, "index.html"}
    for line, name in zip(lines, names, strict=True):
        page = (folder / name).read_text()
        [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
        shown = json.loads(shown)
        assert shown["title"] == Path(line["image"]).name
        best, _ = shown["captions"]
        assert best["caption"] == line["caption"]
        assert all(len(word["runners_up"]) == 3 for word in best["words"])


@pytest.mark.parametrize("kind", ["--html", "--overlay"])
def test_pictures_whose_folder_is_removed_meanwhile_are_missed(
    kind: str,
    checkpoint: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    def say(line: str, file: object = None) -> None:
        if "b.png" in line:
            shutil.rmtree(folder)

    folder = tmp_path / "pages"
    monkeypatch.setattr("captioning.cli.caption.say", say)
    assert main(["caption", str(photos), "--model", str(checkpoint), kind, str(folder)]) == 1
    error = output(capsys)[1][-1]
    assert re.search(r"pages/a\.\w+: removed after it was written, with 1 more", error)


def test_an_overlay_never_replaces_a_photo(checkpoint: Path, photos: Path, capsys: Capture) -> None:
    before = (photos / "b.png").read_bytes()
    folder = str(photos)
    assert main(["caption", folder, "--model", str(checkpoint), "--overlay", folder]) == 1
    assert (photos / "b.png").read_bytes() == before
    _, [error] = output(capsys)
    assert "b.png" in error
    assert "choose another folder" in error


def test_a_bad_photo_is_one_line_and_the_others_are_captioned(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    (photos / "b.png").write_text("no picture")
    assert main(["caption", str(photos), "--model", str(checkpoint)]) == 1
    lines, errors = output(capsys)
    assert [Path(line.split("\t")[0]).name for line in lines] == ["a.jpg", "a.jpg"]
    assert len(errors) == 1
    assert "b.png: not an image" in errors[0]


def test_photos_that_are_all_bad_are_named_one_a_line(
    checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    missing = [str(tmp_path / "one.jpg"), str(tmp_path / "two.jpg")]
    assert main(["caption", *missing, "--model", str(checkpoint)]) == 1
    lines, errors = output(capsys)
    assert not lines
    assert all(name in error for name, error in zip(missing, errors, strict=True))


@pytest.mark.parametrize(("size", "orientation"), [((30, 20), 6), ((1, 1), 1)], ids=str)
def test_turned_and_tiny_photos_are_captioned_and_overlaid(
    checkpoint: Path, tmp_path: Path, size: tuple[int, int], orientation: int, capsys: Capture
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size, "red").save(tmp_path / "photo.image", "JPEG", exif=exif)
    photo, folder = str(tmp_path / "photo.image"), tmp_path / "overlays"
    assert main(["caption", photo, "--model", str(checkpoint), "--overlay", str(folder)]) == 0
    lines, errors = output(capsys)
    assert len(lines) == 1
    assert not errors
    assert (folder / "photo.png").exists()


def test_the_same_seed_samples_the_same_captions(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    outputs = []
    for seed in ("1", "1", "2"):
        sampling = ["--sample", "--temperature", "2", "--seed", seed]
        main(["caption", str(photos), "--model", str(checkpoint), *sampling])
        outputs.append(output(capsys))
    assert outputs[0] == outputs[1] != outputs[2]


def test_limits_of_length_hold(checkpoint: Path, photos: Path, capsys: Capture) -> None:
    limits = ["--beam", "2", "--min-length", "3", "--max-length", "3"]
    main(["caption", str(photos), "--model", str(checkpoint), *limits])
    lines, _ = output(capsys)
    assert {len(line.split("\t")[1].split()) for line in lines} == {3}


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


def test_scenes_are_also_judged_by_what_they_state(evaluated: Path) -> None:
    assert 0 <= json.loads((evaluated / "scores.json").read_text())["right"] <= 1


def test_evaluate_prints_the_scores_and_where_they_are(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    model, folder = ["--model", str(checkpoint)], tmp_path / "scores"
    data = ["--data", str(shapes_data), "--split", "test", "--limit", "1"]
    assert main(["evaluate", *model, *data, "--out", str(folder)]) == 0
    lines, errors = output(capsys)
    assert lines[0].split() == ["score", "95", "%", "interval"]
    assert lines[1].startswith("BLEU-1")
    assert lines[-1] == str(folder)
    assert len(json.loads((folder / "captions.json").read_text())) == 1
    [note] = errors
    assert note.startswith("captioning: CIDEr of one image is always 0")


def test_evaluate_reports_the_vocabulary_used_and_the_novel_captions(
    evaluated: Path, checkpoint: Path, shapes_data: Path
) -> None:
    captions = [entry["caption"] for entry in json.loads((evaluated / "captions.json").read_text())]
    trained = {c for record in Coco(shapes_data).read("train") for c in record.captions}
    known = {" ".join(tokenize(caption)) for caption in trained}
    scores = json.loads((evaluated / "scores.json").read_text())
    assert scores["share not in training"] == np.mean([c not in known for c in captions])
    used = {word for caption in captions for word in caption.split()}
    words = load(checkpoint).vocabulary.words
    assert scores["share of vocabulary"] == len(used) / len(words)


def test_evaluate_has_an_interval_for_every_score_and_every_image_by_itself(
    evaluated: Path,
) -> None:
    report = json.loads((evaluated / "report.json").read_text())
    assert set(report["scores"]) >= {"BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr", "right"}
    assert all(entry["low"] <= entry["high"] for entry in report["scores"].values())
    right = [image["right"] for image in report["images"]]
    assert report["scores"]["right"]["value"] == np.mean(right)


def test_check_ends_with_0_for_a_sound_data_set_and_1_for_another(
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


def test_train_ends_with_where_the_best_checkpoint_is(
    tiny_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    options = ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_epochs", "1"]
    assert main(["train", "--config", str(tiny_config), *options]) == 0
    lines, _ = output(capsys)
    assert lines == [str(tmp_path / "run/best.ckpt")]
    assert Path(lines[0]).exists()


@pytest.mark.integration
def test_nothing_is_said_when_a_reader_has_enough(
    shapes_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # as on most machines
    command = f"{sys.executable} -m captioning check {shapes_data} | true"
    process = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert not process.stderr
