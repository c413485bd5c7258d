import re
import shutil
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.training.validation_images import PAGE
from tests.training.conftest import Patch, Train, interrupt_at

TWO = ("--validation_page.images", "2", "--trainer.precision", "32")


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


def test_the_page_shows_the_captions_of_the_last_validation(
    train_into: Train, shapes_data: Path
) -> None:
    run = train_into("run", *TWO)
    page = (run / PAGE).read_text()
    assert epochs(page) == ["3", "2", "1"]
    records = Coco(shapes_data).read("val")[::2]
    latest = load(run / "last.ckpt")([record.image for record in records])
    assert [each[0] for each in captions(page)] == [caption.text for caption in latest]
    assert [len(each) for each in captions(page)] == [3, 3]
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


@pytest.mark.integration
def test_photos_that_have_gone_are_left_out(
    train_into: Train, tmp_path: Path, shapes_data: Path
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    options = ["--data.reader.init_args.root", str(data), "--data.features", str(tmp_path / "f")]
    options += ["--model.encoder.init_args.trainable_stages=0", "--validation_page.images=8"]
    train_into("run", *options)
    gone, *_, last = Coco(data).read("val")
    gone.image.unlink()
    page = (train_into("run", *options, "--overwrite") / PAGE).read_text()
    assert last.image.name in page
    assert gone.image.name not in page
