import csv
import shutil
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon, categories, ground
from captioning.training.validation_images import GROUNDING_SCORES, PAGE
from tests.training.conftest import Train

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
    folder = train_into("run", *FLUENT, *options)
    captioner = load(folder / "last.ckpt")
    split = Coco(shapes_data).read("val")
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


@pytest.mark.parametrize(
    "option", ["--validation_grounding.map=lime", "--validation_page.maps=[lime]"]
)
def test_an_unknown_map_is_refused_before_a_training_begins(train_into: Train, option: str) -> None:
    with pytest.raises(InputError, match="unknown map 'lime'; choose from attention, "):
        train_into("run", option)
