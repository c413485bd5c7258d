import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.evaluation.grounding import Lexicon, categories, ground
from captioning.training.validation_images import GROUNDING_SCORES, PAGE
from tests.training.conftest import Patch, Train, interrupt_at, saved, with_scores

TWO = ("--validation_page.images", "2", "--trainer.precision", "32")


AVERAGE = json.dumps(
    {
        "class_path": "captioning.training.ExponentialAverage",
        "init_args": {"decay": 0.9, "keeps_start": True},
    }
)
"""Averaged weights, whose captions are others than those of the latest weights."""


def captions(page: str) -> list[list[str]]:
    """By image, its captions from the latest epoch to the first."""
    tables = re.findall(r'<table class="history">.*?</table>', page)
    return [re.findall(r'<td class="caption" dir="auto">(.*?)</td>', table) for table in tables]


def epochs(page: str) -> list[str]:
    [table] = re.findall(r"All scores by epoch.*?</table>", page, re.DOTALL)
    return re.findall(r'<th scope="row">(.*?)</th>', table)


def losses(page: str) -> list[str]:
    [card] = re.findall(r"Training loss<.*?</figure>", page)
    return re.findall(r'<img class="curve" src="(.*?)"', card)


@pytest.mark.parametrize(
    "averaging",
    [
        pytest.param((), id="latest weights", marks=pytest.mark.integration),
        pytest.param(("--trainer.callbacks", AVERAGE), id="averaged weights"),
    ],
)
def test_the_page_shows_the_captions_of_the_last_validation(
    train_into: Train, shapes_data: Path, averaging: tuple[str, ...]
) -> None:
    options = ("--model.learning_rate=0.03", "--trainer.max_epochs=2", *averaging)
    run = train_into("run", *TWO, *options)
    files = {"best.ckpt", "config.yaml", "csv", "last.ckpt", PAGE}
    assert {path.name for path in run.glob("[!.]*")} == files
    page = (run / PAGE).read_text()
    assert epochs(page) == ["2", "1"]
    records = Coco(shapes_data).read().records("val")[::2]
    latest = load(run / "last.ckpt")([record.image for record in records])
    assert [each[0] for each in captions(page)] == [caption.text for caption in latest]
    assert [len(each) for each in captions(page)] == [2, 2]
    for record in records:
        assert record.image.name in page
        assert all(reference in page for reference in record.captions)


@pytest.mark.integration
def test_a_resumed_training_goes_on_with_the_page(train_into: Train, monkeypatch: Patch) -> None:
    whole = (train_into("whole", *TWO) / PAGE).read_text()
    for step in (4, 7):
        with monkeypatch.context() as patch:
            interrupt_at(step, patch)
            with pytest.raises(KeyboardInterrupt):
                train_into("run", *TWO, "--save_every", "0", "--resume")
    page = (train_into("run", *TWO, "--resume") / PAGE).read_text()
    assert epochs(page) == ["3", "2", "1"]
    assert (captions(page), losses(page)) == (captions(whole), losses(whole))


def test_validations_within_an_epoch_have_their_place(train_into: Train) -> None:
    options = ("--trainer.val_check_interval", "1", "--trainer.max_epochs", "1")
    page = (train_into("run", *TWO, *options, "--trainer.logger", "false") / PAGE).read_text()
    assert epochs(page) == ["1", "0.67", "0.33"]


def test_the_page_marks_the_epoch_that_the_best_checkpoint_holds(
    train_into: Train, monkeypatch: Patch
) -> None:
    with_scores(monkeypatch, 0.0, 0.3, 0.3)
    run = train_into("run", *TWO, "--trainer.max_epochs=2")
    assert "best: epoch 1<" in (run / PAGE).read_text()
    assert saved(run, "best.ckpt")["epoch"] == 0


@pytest.mark.integration
def test_photos_that_have_gone_are_left_out(
    train_into: Train, tmp_path: Path, shapes_data: Path
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    options = ["--data.reader.init_args.root", str(data), "--data.features", str(tmp_path / "f")]
    options += ["--model.encoder.init_args.trainable_stages=0", "--validation_page.images=8"]
    train_into("run", *options)
    gone, *_, last = Coco(data).read().records("val")
    gone.image.unlink()
    page = (train_into("run", *options, "--overwrite") / PAGE).read_text()
    assert last.image.name in page
    assert gone.image.name not in page


FLUENT = (
    *("--model.learning_rate", "0.01", "--trainer.max_epochs", "24", "--trainer.precision", "32"),
    *("--model.decoder.init_args.hidden_dim", "64", "--trainer.check_val_every_n_epoch", "24"),
    *("--model.decoder.init_args.embedding_dim", "64", "--model.search.init_args.max_length", "12"),
)
"""Enough for a model to name things, right or wrong."""


def last_row(folder: Path) -> dict[str, str]:
    """The scores of the last validation."""
    with (folder / "csv/metrics.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["val/BLEU-4"]][-1]


@pytest.mark.integration  # trains until the model names things
def test_each_validation_logs_what_ground_finds(train_into: Train, shapes_data: Path) -> None:
    options = ("--validation_grounding.images", "2", "--validation_grounding.map", "gradient")
    options += ("--validation_page.images", "1")
    # A frozen encoder looks where it did when the fit began, which is when that is measured.
    options += ("--model.encoder.init_args.trainable_stages", "0")
    folder = train_into("run", *FLUENT, *options)
    captioner = load(folder / "last.ckpt")
    split = Coco(shapes_data).read().records("val")
    records = split[::2]
    captions = captioner([record.image for record in records])
    texts = {record.image_id: each.text for record, each in zip(records, captions, strict=True)}
    lexicon = Lexicon.of(categories(split))  # which a limit does not change
    [report] = ground(captioner, records, texts, lexicon, maps=["gradient"]).values()
    expected = report.summary
    found = last_row(folder)
    assert {"pointing", "CHAIR-i", "CHAIR-s"} <= expected.keys()  # it has learnt to name things
    for name, logged in GROUNDING_SCORES.items():
        assert float(found[f"val/{logged}"]) == pytest.approx(expected[name], abs=1e-4)
    page = (folder / PAGE).read_text()
    assert '<th scope="col">pointing minus Gaussian</th>' in page
    assert 'class="name">CHAIR-i</span>' in page  # it has a curve


def test_data_without_boxes_log_none(train_into: Train, shapes_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(shapes_data, data)
    for boxes in (data / "annotations").glob("instances_*.json"):
        boxes.unlink()
    root = ("--data.reader.init_args.root", str(data), "--validation_grounding.images=2")
    logged = last_row(train_into("run", *root, "--trainer.max_epochs=1"))
    assert not {f"val/{name}" for name in GROUNDING_SCORES.values()} & logged.keys()
