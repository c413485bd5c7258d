"""A model of one's own photos, from a model that knows others."""

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning import files
from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import FEATURES, Calibration
from captioning.commands import main
from captioning.data.data_module import CaptionData
from captioning.data.readers import Coco, reader_for
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.evaluation.captions import split_captions
from captioning.files import only_writer
from captioning.shapes import write_shapes
from captioning.training.configuration import yaml_value
from captioning.training.finetune import START_WEIGHTS, Plan, best_between, finetune
from captioning.training.finetune.choice import Selection, cider_report
from captioning.training.finetune.messages import (
    everyday_changes,
    say_outliers,
    say_plan,
    say_start,
)
from captioning.training.finetune.photos import CaptionWords, read_photos
from captioning.training.finetune.start_captions import StartCaptions
from captioning.training.initial import interpolate
from captioning.training.train_cli import train
from captioning.web.page import PHOTOS
from tests.training.conftest import Capture, Patch

COLOURS = ("red", "green", "blue", "teal", "magenta", "olive")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixteen photos, each with a text file of captions beside it."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(16):
        colour = COLOURS[number % len(COLOURS)]
        Image.new("RGB", (64 + number, 48), colour).save(photos / f"{number}.png")
        (photos / f"{number}.txt").write_text(f"a wall painted {colour}\nthe {colour} wallpaper\n")
    return photos


def tuned(folder: Path, name: str = "out", **options: Any) -> Path:
    """The model of drawn scenes after an epoch of the photos."""
    defaults: dict[str, Any] = {"model": "shapes", "out": folder.parent / name, "epochs": 1}
    return finetune(folder, **(defaults | options))


def test_a_model_learns_the_words_of_a_folder_and_keeps_its_own(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    (folder / "bad.png").write_bytes(b"no photo")
    (folder / "bad.txt").write_text("a wall")
    out = tmp_path / "out"
    options = ["--model", "shapes", "--out", str(out), "--epochs", "10"]
    assert main(["finetune", str(folder), *options]) == 1
    assert re.search(r"bad\.png: not an image[^|]*--skip-bad", capsys.readouterr().err)
    assert not out.exists()
    assert main(["finetune", str(folder), *options, "--skip-bad"]) == 0
    told = capsys.readouterr()
    assert "bad.png: not an image" in told.err
    model, command, *pages = told.out.splitlines()
    assert command == f"captioning caption PHOTOS --model {model}"
    assert "with 32 captions" in told.err
    score = r"\d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)"
    assert re.search(f"CIDEr on the photos to validate: {score} before, {score} now", told.err)
    assert "frequent words said rarely or never: " in told.err
    assert len(re.findall(r'\.png: ".*" before, ".*" now; people: "a wall', told.err)) == 3
    assert re.search(
        r"calibrated on each half of .*; calibration error \d\.\d{3} of captions", told.err
    )
    calibration = load(model).calibration
    assert calibration is not None  # though its start has none
    assert calibration.review is not None
    assert "of 9 everyday photos have another caption now, such as cat.jpg: " in told.err
    examples = (out / "examples.html").read_text()
    assert examples.count("<img") == examples.count("before: ") > 3
    assert pages[1].endswith("examples.html")
    before, after = load("shapes").vocabulary.words, load(model).vocabulary.words
    assert after[: len(before)] == before
    assert {"wall", "painted", "wallpaper"} <= set(after)
    assert "Captions are by the " in (out / "validation.html").read_text()
    assert main(["caption", str(folder / "0.png"), "--model", model]) == 0
    config = yaml_value((out / "config.yaml").read_text())
    assert config["model"]["initial"] == "shapes"
    again = ["--config", str(out / "config.yaml"), "--trainer.fast_dev_run", "true"]
    assert train(again) is None


@pytest.mark.integration
def test_captions_in_another_language_keep_no_word_of_the_model(
    folder: Path, capsys: Capture
) -> None:
    for number, file in enumerate(sorted(folder.glob("*.txt"))):
        file.write_text(f"eine Wand, die man {number} sieht\nTapete in schöner Farbe\n")
    german = load(tuned(folder, model="photos"))
    assert load("photos").search.config["repeats"] is False
    assert german.search.config["repeats"] is True
    assert german.calibration is not None
    assert not german.calibration.named  # it is fitted for English captions only
    words = set(german.vocabulary.words)
    assert {"wand", "tapete", "farbe"} <= words
    assert not {"the", "dog", "person"} & words
    told = capsys.readouterr().err
    assert "captions in another language than photos's: none of its words is kept" in told
    assert "usually good for" not in told


@pytest.mark.integration
def test_a_finished_model_is_replaced_by_the_same_command_alone(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    zeros, model = dict.fromkeys(FEATURES, 0.0), tmp_path / "start.safetensors"
    start = Calibration(1.0, zeros, zeros | {"mean log probability": 1.0}, -1.0)
    export("shapes", model, calibration=start)
    before = tuned(folder, model=model).read_bytes()
    calibration = load(tmp_path / "out/best.safetensors").calibration
    assert calibration is not None  # a few photos move its start's
    assert calibration.weights == pytest.approx(start.weights, abs=0.1)
    assert calibration.bias != start.bias
    capsys.readouterr()
    assert tuned(folder, model=model).read_bytes() == before
    told = capsys.readouterr().err
    assert "nothing is left to train; to continue, raise --epochs" in told
    assert "CIDEr" not in told  # nothing is captioned for it
    (tmp_path / "out/best.safetensors").unlink()
    assert tuned(folder, model=model).read_bytes() == before  # made again
    with pytest.raises(InputError, match=r"another training \(by --seed\); .* --overwrite"):
        tuned(folder, model=model, seed=1)
    other = shutil.copytree(folder, tmp_path / "other" / folder.name)
    with pytest.raises(InputError, match=r"another training \(by the folder\)"):
        tuned(other, model=model, out=tmp_path / "out")
    capsys.readouterr()
    tuned(folder, model=model, epochs=2)
    told = capsys.readouterr().err
    assert "epoch 2/2" in told
    assert "epoch 1/2" not in told
    tuned(folder, model=model, epochs=1)
    assert "nothing is left to train" in capsys.readouterr().err
    tuned(other, model=model, out=tmp_path / "out", overwrite=True)
    assert "epoch 1/1" in capsys.readouterr().err


@pytest.mark.integration
def test_added_and_replaced_photos_are_learnt_by_the_same_command(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = tmp_path / "out"
    before = tuned(folder, keep_features=True).read_bytes()
    kept = [path.read_bytes() for path in sorted(run.glob("*.ckpt"))]
    Image.new("RGB", (80, 48), "white").save(folder / "16.png")
    (folder / "16.txt").write_text("a white wall\n")
    Image.new("RGB", (65, 48), "white").save(folder / "1.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CaptionData, "val_dataloader", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # before anything is replaced
            tuned(folder, keep_features=True)
    assert [path.read_bytes() for path in sorted(run.glob("*.ckpt"))] == kept
    tuned(folder, keep_features=True)
    told = capsys.readouterr().err
    assert told.count("photos or captions have changed: training again") == 2
    assert "epoch 1/1" in told.rpartition("changed")[2]
    assert (run / "earlier.safetensors").read_bytes() == before
    assert b"/16.png" in (run / "features/features-000001.safetensors").read_bytes()


@pytest.mark.integration
def test_the_earlier_model_is_kept_if_added_photos_make_it_worse(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = load(tuned(folder, epochs=30)).model.state_dict()
    photos = read_photos(folder, None, False, {})
    val_names = {record.image.name for record in photos.val}
    for number in range(40):
        name = f"new {number}.png"
        Image.new("RGB", (64, 48 + number), COLOURS[number % 6]).save(folder / name)
        (folder / name).with_suffix(".txt").write_text("nobody says this of it\n")
    later = read_photos(folder, None, False, {})
    assert val_names <= {record.image.name for record in later.val}
    wrong = [record.image for record in later.val if record.image.name.startswith("new")]
    for image in wrong:
        image.unlink()
        image.with_suffix(".txt").unlink()
    capsys.readouterr()
    model = tuned(folder, epochs=30)
    assert "; the earlier model is kept, since all photos together" in capsys.readouterr().err
    after = load(model).model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    page = (tmp_path / "out/validation.html").read_text()
    assert "Captions are by the earlier model" in page


def test_an_earlier_model_is_judged_on_photos_that_it_was_not_trained_on() -> None:
    new, better = [0.5, 0.6, 0.4, 0.5, 0.6, 0.4], [0.9, 1.0, 0.8, 0.9, 1.0, 0.8]
    noisy = [0.9, 0.2, 0.8, 0.1, 0.9, 0.2]

    def selection(earlier: list[float], is_judge: list[bool]) -> Selection:
        groups = np.zeros(6, int)
        return Selection(np.array([new, earlier]), groups, None, 1, np.array(is_judge))

    assert selection(better, [True] * 6).best() == 1
    assert selection(better, [True] * 6).cross_fitted() == [1] * 6
    assert selection(noisy, [True] * 6).best() == 0
    half = [*better[:3], *new[3:]]  # better on what it has learnt
    assert selection(half, [False] * 3 + [True] * 3).best() == 0
    half = [*new[:3], *better[3:]]
    assert selection(half, [False] * 3 + [True] * 3).cross_fitted() == [0] * 3 + [1] * 3


@pytest.mark.integration
def test_a_finished_run_takes_at_most_twice_the_room_of_its_model(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    start, photos, run = load("shapes"), tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    write_shapes(tmp_path / "scenes", train=16, val=1, test=1, progress=False)
    for image in (tmp_path / "scenes/train").glob("*.jpg"):
        shutil.copy(image, photos)
        caption = start(image).text  # so that no training is better than the start
        (photos / image.name).with_suffix(".txt").write_text(caption)
    model = tuned(photos)
    sizes = [file.stat().st_size for file in run.rglob("*") if file.is_file()]
    assert sum(sizes) <= 2 * model.stat().st_size
    assert not [*run.glob("wandb*"), *run.glob("features"), *run.glob("best.ckpt")]
    page = (run / "validation.html").read_text()
    assert "Captions are by the model as it was before the training" in page
    record = read_photos(photos, None, False, {}).val[0]
    assert record.captions[0] in page
    tuned(photos, epochs=2)
    assert load(run / "earlier.safetensors").config == start.config
    tuned(photos, "all", keep_features=True)
    assert {"best.ckpt", "features", "last.ckpt"} <= {
        path.name for path in run.parent.glob("all/*")
    }


def test_captions_in_another_language_say_what_they_teach(folder: Path, capsys: Capture) -> None:
    start_vocabulary = Vocabulary([f"word{number}" for number in range(1_001)])
    photos = read_photos(folder, None, False, {})
    words = CaptionWords.of(photos, start_vocabulary, "ptb")
    say_plan(photos, words, None, model_name="photos")
    told = capsys.readouterr().err
    counts = f"teach {words.count} words, of which {words.frequent_count} occur 5 times or more"
    assert counts in told
    assert 0 < words.frequent_count < words.count
    assert "usually good for" not in told
    assert "left out" not in told
    for number in range(16):
        rows = [f"eine Wand {row} in Farbe" for row in range(70 * number, 70 * number + 140)]
        (folder / f"{number}.txt").write_text("\n".join(rows))
    photos = read_photos(folder, None, False, {})
    words = CaptionWords.of(photos, start_vocabulary, "ptb")
    assert words.count - words.rare_count == 4
    say_plan(photos, words, None, model_name="photos")
    told = capsys.readouterr().err
    assert f"and {words.rare_count:,} fewer than 3 times, which are left out" in told


def test_what_captions_teach_is_said_once(folder: Path, capsys: Capture) -> None:
    start = load("photos")
    photos = read_photos(folder, None, False, {})
    words = CaptionWords.of(photos, start.vocabulary, "ptb")
    start_captions = StartCaptions.of(start, photos, "ptb")
    plan = Plan.of(600)
    lines = []
    for planned in (plan, plan.for_manner(600)):
        say_plan(photos, words, None, model_name="photos")
        say_start(photos, words, start_captions, planned, model_name="photos")
        lines.append(capsys.readouterr().err)
    content, manner = lines
    assert ("usually good for" in content, "teach it how to say" in content) == (True, False)
    assert ("usually good for" in manner, "teach it how to say" in manner) == (False, True)


def test_photos_to_keep_are_recommended_if_content_was_learnt() -> None:
    plan = Plan.of(600)
    content, manner = (
        everyday_changes(load("photos"), load("shapes"), planned)
        for planned in (plan, plan.for_manner(600))
    )
    assert content == f"{manner}; --keep FOLDER trains such photos along"
    assert manner.startswith("9 of 9 everyday photos have another caption now, such as ")


@pytest.mark.integration
def test_photos_to_keep_train_along_and_have_a_score_of_their_own(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    write_shapes(tmp_path / "scenes", train=30, val=9, test=1, progress=False)
    model = tuned(folder, keep=tmp_path / "scenes")
    told = capsys.readouterr().err
    counts = r"(\d+) photos to train on and (\d+) to validate.*\n"
    assert re.search(rf"{counts}\1 photos of \S+scenes train along, and \2 validate\n", told)
    assert re.search(r"CIDEr on the photos to keep: \d\.\d+ \(.*\) before, \d\.\d+ \(", told)
    assert "best val/CIDEr of data sets: " in told
    assert "everyday photos" not in told
    assert "wallpaper" in load(model).vocabulary.words


def test_the_same_photos_in_both_data_sets_stay_apart(folder: Path, tmp_path: Path) -> None:
    rows = ["file_name,caption,split"]
    for split, records in reader_for(folder).read().splits.items():
        rows += [f"{record.image},a photo,{split}" for record in records]
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "captions.csv").write_text("\n".join(rows))
    photos = read_photos(folder, keep, False, {})
    assert len(photos.train) + len(photos.val) == 16
    assert {len(record.captions) for record in (*photos.train, *photos.val)} == {2}
    for records, rehearsal_records in (
        (photos.train, photos.rehearsal_train),
        (photos.val, photos.rehearsal_val),
    ):
        assert [r.image.name for r in rehearsal_records] == [r.image.name for r in records]
        assert {record.captions for record in rehearsal_records} == {("a photo",)}


def test_the_settings_of_a_training_that_runs_in_the_folder_stay(
    folder: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.1)
    out = tmp_path / "out"
    out.mkdir()
    (out / "finetune.yaml").write_text("of the other training")
    (out / "features").mkdir()
    with only_writer(out):
        for overwrite in (False, True):
            with pytest.raises(InputError, match="another process is writing there"):
                tuned(folder, overwrite=overwrite)
    assert sorted(file.name for file in out.glob("[!.]*")) == ["features", "finetune.yaml"]
    assert (out / "finetune.yaml").read_text() == "of the other training"


@pytest.mark.integration
def test_captions_in_another_script_are_learnt_by_its_tokenizer(folder: Path) -> None:
    for path in folder.glob("*.txt"):
        path.write_text("一面红色的墙\n墙是红色的\n" + "墙是红色的" * 20, encoding="utf-8")
    loaded = load(tuned(folder, tokenizer="chinese"))
    assert loaded.vocabulary.tokenizer == "chinese"
    assert set(loaded.vocabulary.words) == {"一面", "红色", "的", "墙", "是"}
    caption = loaded(folder / "0.png")
    assert caption.text == "".join(caption.words)
    assert loaded.search.max_length == 80  # of the captions; the model that it starts from has 20


@pytest.mark.integration
def test_captions_in_another_language_never_go_back_to_the_start(
    folder: Path, monkeypatch: Patch
) -> None:
    tried: list[float] = []

    def watched(
        start_parameters: dict[str, torch.Tensor], trained: Captioner, start_weight: float
    ) -> Captioner:
        tried.append(start_weight)
        return interpolate(start_parameters, trained, start_weight)

    monkeypatch.setattr("captioning.training.finetune.choice.interpolate", watched)
    for path in folder.glob("*.txt"):
        path.write_text("eine bemalte Wand mit a star\ndie Tapete ist bunt\n")
    german = load(tuned(folder, "german"))
    assert (german.vocabulary.spellings["wand"], len(german.vocabulary.spellings)) == ("Wand", 2)
    assert not tried
    for path in folder.glob("*.txt"):
        path.write_text("a painted wall\na star to the left of a square\n")
    tuned(folder, "english")
    assert tried == list(START_WEIGHTS[1:-1])


def test_one_photo_is_too_few_to_train_on(folder: Path) -> None:
    for file in folder.iterdir():
        if file.stem != "1":
            file.unlink()
    with pytest.raises(InputError, match=r"1 photos to train on and 0 to validate; .* 3 photos"):
        finetune(folder)


def test_more_photos_train_more_of_the_encoder_for_fewer_epochs() -> None:
    plans = [Plan.of(photos) for photos in (20, 200, 1_000, 5_000)]
    assert [plan[:3] for plan in plans] == [(0, 90, 8), (0, 40, 8), (3, 12, 8), (6, 8, 32)]
    assert Plan.of(20, epochs=3).epochs == 3
    fewer = Plan.of(160, epochs=20)
    assert fewer.epochs / fewer.batch_size == 40 / Plan.of(160).batch_size  # as many steps
    epochs = [Plan.of(count).for_manner(count).epochs for count in (20, 56, 80, 280)]
    assert epochs == [56, 20, 14, 4]  # as many steps
    assert Plan.of(1_000).for_manner(1_000).trainable_stages == 0


@pytest.mark.integration
def test_most_of_the_start_is_kept_unless_training_clearly_helped(tmp_path: Path) -> None:
    write_shapes(tmp_path / "scenes", train=1, val=12, test=1, progress=False)
    records = Coco(tmp_path / "scenes", objects=False).read().records("val")
    start, spoilt = load("shapes"), load("shapes")
    captions = split_captions(start, records)
    choose = partial(best_between, start, start_captions=captions, tokenizer_name="ptb")
    choice = choose(load("shapes"), [records])
    assert choice.start_weight == 1
    assert choice.captioner.config == start.config
    torch.manual_seed(0)
    for parameter in spoilt.model.decoder.parameters():
        parameter.add_(0.7 * parameter.abs().mean() * torch.randn_like(parameter))
    choice = choose(spoilt.freeze(), [records])
    assert choice.start_weight >= 0.75
    again = choose(choice.captioner, [records])
    scores = [
        cider_report(start, captions, records, "ptb").corpus["CIDEr"]
        for captions in (choice.captions, again.captions)
    ]
    assert scores[1] >= scores[0]
    wrong = [replace(record, captions=("nothing like it",)) for record in records]
    assert choose(load("shapes"), [wrong]).start_weight == 0
    choose = partial(choose, spoilt, [records], start_weights=[0.0], earlier=load("shapes"))
    choice = choose()
    assert choice.is_earlier
    assert choice.captions == captions
    assert not choose(earlier_train_ids=[record.image_id for record in records]).is_earlier


@pytest.mark.integration
def test_captions_that_fit_their_photos_far_less_than_others_are_named(capsys: Capture) -> None:
    start = load("photos")
    files = sorted(PHOTOS.values())
    captions = [caption.text for caption in start(files)]
    for exchanged in (False, True):
        if exchanged:
            captions[3] = "a man riding a wave on a surfboard"
        records = [
            Record(file, file.name, (caption,))
            for file, caption in zip(files, captions, strict=True)
        ]
        say_outliers(start, records, "photos")
        assert ("1 of 9 captions" in capsys.readouterr().err) is exchanged


@pytest.mark.integration
def test_a_model_of_photos_learns_to_caption_drawn_scenes(tmp_path: Path) -> None:
    write_shapes(tmp_path / "scenes", train=60, val=10, test=10, progress=False)
    model = tuned(tmp_path / "scenes", model="photos", epochs=15)
    captions = load(model)(sorted((tmp_path / "scenes/test").glob("*.jpg")))
    known = {"circle", "square", "triangle", "star", "cross"}
    assert sum(bool(known & set(caption.words)) for caption in captions) >= 8
    # Scenes decide which captions are right, and so few photos teach few whole sentences.
    assert np.mean([caption.confidence for caption in captions]) < 0.5
