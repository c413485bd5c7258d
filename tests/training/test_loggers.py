import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wandb
from PIL import Image

from captioning.captioner import load
from captioning.commands import main
from captioning.data.readers import Coco
from captioning.errors import InputError
from captioning.evaluation.report import Report
from captioning.training.loggers import wandb_mode
from captioning.training.validation_images import IMAGE_SCORES
from captioning.viewing.overlay import word_pictures

STAGED = "wandb/offline-run-*/data/artifacts/staging/*"


@pytest.fixture(scope="module")
def run(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training of two epochs with a table of two images, W&B offline."""
    folder = tmp_path_factory.mktemp("boards") / "run"
    options = ["--trainer.default_root_dir", str(folder), "--trainer.max_epochs", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.delenv("WANDB_DATA_DIR", raising=False)
        table = ["--validation_table.images", "2", "--trainer.precision", "32"]
        assert main(["train", "--config", str(tiny_config), *options, *table]) == 0
    return folder


def staged(run: Path) -> dict[str, bytes]:
    """What W&B will upload, by its SHA-256."""
    files = [path.read_bytes() for path in run.glob(STAGED)]
    return {hashlib.sha256(content).hexdigest(): content for content in files}


def tables(run: Path) -> list[dict[str, Any]]:
    """The tables that W&B will upload, in the order of the epochs."""
    files = run.glob(STAGED)
    in_order = sorted(files, key=lambda path: path.stat().st_mtime_ns)
    contents = dict.fromkeys(path.read_bytes() for path in in_order)  # each is there twice
    return [json.loads(content) for content in contents if content.startswith(b"{")]


@pytest.mark.integration
def test_each_validation_logs_a_table_of_the_same_images(run: Path, shapes_data: Path) -> None:
    records = Coco(shapes_data).read("val")[::2]
    first, second = tables(run)
    for table in (first, second):
        assert table["columns"][:6] == ["image", "references", "caption", *IMAGE_SCORES]
        assert [row[1] for row in table["data"]] == ["\n".join(r.captions) for r in records]
        for row in table["data"]:
            overlays = [cell for cell in row[7:] if cell is not None]
            assert len(overlays) == len(row[2].split())
            assert all(cell["_type"] == "image-file" for cell in (row[0], *overlays))


@pytest.mark.integration
def test_each_row_has_the_scores_of_its_image(run: Path, shapes_data: Path) -> None:
    records = Coco(shapes_data).read("val")
    captions = load(run / "last.ckpt")([record.image for record in records])
    report = Report.of(
        {record.image_id: caption.text for record, caption in zip(records, captions, strict=True)},
        {record.image_id: record.captions for record in records},
    )
    rows = [row[3:6] for row in tables(run)[-1]["data"]]
    expected = np.stack([report.images[name][::2] for name in IMAGE_SCORES], axis=1)
    np.testing.assert_allclose(rows, expected, atol=1e-12)


@pytest.mark.integration
def test_each_row_has_the_interactive_view_of_its_caption(run: Path) -> None:
    files = staged(run)
    for row in tables(run)[-1]["data"]:
        assert row[6]["_type"] == "html-file"
        page = files[row[6]["sha256"]].decode()
        [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
        [caption] = json.loads(shown)["captions"]
        assert caption["caption"] == row[2]
        assert all(len(word["runners_up"]) == 3 for word in caption["words"])
        assert "wandb" not in page  # nor any other address that it would ask


@pytest.mark.integration
def test_the_run_of_w_and_b_has_configuration_and_histograms_and_lies_in_the_runs_folder(
    run: Path,
) -> None:
    [folder] = (run / "wandb").glob("offline-run-*")
    [file] = folder.glob("*.wandb")
    content = file.read_bytes()
    assert b"learning_rate" in content
    assert b"val/CIDEr of images" in content
    assert b'"histogram"' in content
    assert wandb.run is None
    assert "WANDB_DATA_DIR" not in os.environ


@pytest.mark.integration
def test_the_table_shows_the_maps_that_the_configuration_names(
    tiny_config: Path, tmp_path: Path, shapes_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    run = tmp_path / "run"
    options = ["--trainer.default_root_dir", str(run), "--trainer.max_epochs", "1"]
    options += ["--trainer.precision", "32", "--trainer.inference_mode", "true"]
    maps = ["--validation_table.images", "1", "--validation_table.maps", "[gradient, attention]"]
    assert main(["train", "--config", str(tiny_config), *options, *maps]) == 0
    record = Coco(shapes_data).read("val")[0]
    [caption] = load(run / "last.ckpt")([record.image], maps=["gradient"])
    [table] = tables(run)
    assert table["columns"][7] == "word 1, gradient"
    [row] = table["data"]
    files = staged(run)
    with Image.open(record.image) as photo:
        expected = word_pictures(photo.copy(), caption.array(), caption.crop)[0]
    with Image.open(io.BytesIO(files[row[7]["sha256"]])) as overlay:
        difference = np.asarray(overlay, dtype=float) - np.asarray(expected, dtype=float)
    assert np.abs(difference).mean() < 5  # JPEG
    [shown] = re.findall(r"data-attention-view>(.*?)</script>", files[row[6]["sha256"]].decode())
    [told] = json.loads(shown)["captions"]
    assert [each["map"] for each in told["maps"]] == ["gradient", "attention"]


@pytest.fixture
def without_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    wandb.teardown()  # which keeps the mode of earlier tests


@pytest.mark.usefixtures("without_login")
def test_without_a_login_w_and_b_stays_offline_and_asks_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wandb_mode() == "offline"
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(InputError, match="nobody has logged in; run `wandb login`"):
        wandb_mode()


def test_with_a_login_w_and_b_is_online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb, "login", lambda **options: options["prompt"] is False)
    assert wandb_mode() == "online"


def test_a_training_after_one_with_a_logger_that_was_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WANDB_MODE", "dryrun")  # by Lightning
    assert wandb_mode() == "offline"


def test_an_unknown_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "onlien")
    with pytest.raises(InputError, match="WANDB_MODE is 'onlien'; give online, offline"):
        wandb_mode()
