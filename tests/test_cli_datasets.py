"""The commands on a data set of Hugging Face, as its library writes it."""

from pathlib import Path

import pytest
import yaml
from PIL import Image

from captioning.commands import main
from tests.conftest import image_file

pytestmark = pytest.mark.integration

COLOURS = ("red", "green", "blue", "teal", "magenta", "olive", "white", "black")


@pytest.fixture(params=["parquet", "saved"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Eight photos with two captions each, two of them to validate on."""
    library = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    folder = tmp_path / "walls"
    images = [Image.new("RGB", (64, 48), colour) for colour in COLOURS]
    photos = [{"bytes": image_file(image, "JPEG"), "path": None} for image in images]
    texts = [[f"a wall painted {colour}", f"a {colour} wallpaper"] for colour in COLOURS]
    rows = library.Dataset.from_dict({"image": photos, "caption": texts})
    rows = rows.cast_column("image", library.Image())
    splits = {"train": rows.select(range(6)), "validation": rows.select([6, 7])}
    if request.param == "saved":
        library.DatasetDict(splits).save_to_disk(folder)
        return folder
    for name, split in splits.items():
        split.to_parquet(folder / f"data/{name}-00000-of-00001.parquet")
    return folder


def test_rows_are_checked_trained_on_and_scored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(folder)]) == 0
    assert "No problems found" in capsys.readouterr().out
    run = ["--model", "shapes", "--out", str(tmp_path / "run"), "--epochs", "1"]
    assert main(["finetune", str(folder), *run]) == 0
    model = capsys.readouterr().out.splitlines()[0]
    page = (tmp_path / "run/validation.html").read_text()
    assert page.count("data:image/jpeg;base64") >= 1
    config = tmp_path / "run/config.yaml"
    reader = yaml.safe_load(config.read_text())["data"]["reader"]
    assert reader["class_path"] == "captioning.data.readers.hugging_face.HuggingFace"
    again = ["--config", str(config), "--data.workers", "2", "--data.features", "null"]
    again += ["--trainer.default_root_dir", str(tmp_path / "again"), "--trainer.max_epochs", "1"]
    assert main(["train", *again]) == 0
    scores = ["--out", str(tmp_path / "scores"), "--split", "validation"]
    assert main(["evaluate", "--model", model, "--data", str(folder), *scores]) == 0
    captions = (tmp_path / "scores/captions.json").read_text()
    assert '"validation/1"' in captions
    results = [str(tmp_path / "scores/captions.json"), str(folder)]
    assert main(["score", *results]) == 0
    capsys.readouterr()
    assert main(["caption", str(folder / "validation/1"), "--model", model]) == 0
    assert capsys.readouterr().out.startswith(f"{folder / 'validation/1'}\t")
