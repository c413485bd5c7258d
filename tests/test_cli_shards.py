"""The commands on shards of photos, as they are."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from captioning.commands import main

pytestmark = pytest.mark.integration

COLOURS = ("red", "green", "blue", "teal", "magenta", "olive", "white", "black")


def jpeg(colour: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(content, "JPEG")
    return content.getvalue()


@pytest.fixture(params=["webdataset", "datasets"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two shards with four captioned photos each."""
    library = pytest.importorskip(request.param, reason=f"no extra {request.param}")
    folder = tmp_path / "shards"
    captions = {colour: f"a wall painted {colour}" for colour in COLOURS}
    if request.param == "datasets":
        photos = [{"bytes": jpeg(colour), "path": None} for colour in COLOURS]
        texts = [[text, f"a {colour} wallpaper"] for colour, text in captions.items()]
        made = library.Dataset.from_dict({"image": photos, "caption": texts})
        made.cast_column("image", library.Image()).save_to_disk(folder, num_shards=2)
        return folder
    folder.mkdir()
    for part in range(2):
        with library.TarWriter(str(folder / f"0000{part}.tar")) as shard:
            for colour in COLOURS[4 * part : 4 * part + 4]:
                key, text = f"{part:05d}{COLOURS.index(colour):04d}", captions[colour]
                shard.write({"__key__": key, "jpg": jpeg(colour), "txt": text})
    return folder


def test_shards_are_checked_trained_on_scored_and_captioned(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", str(folder)]) == 0
    assert "No problems found" in capsys.readouterr().out
    run = ["--model", "shapes", "--out", str(tmp_path / "run"), "--epochs", "1"]
    assert main(["finetune", str(folder), *run]) == 0
    model = capsys.readouterr().out.splitlines()[0]
    page = (tmp_path / "run/validation.html").read_text()
    assert page.count("data:image/jpeg;base64") >= 1
    again = [*("--config", str(tmp_path / "run/config.yaml")), "--data.workers", "2"]
    again += ["--data.features", "null", "--trainer.default_root_dir", str(tmp_path / "again")]
    assert main(["train", *again, "--trainer.max_epochs", "1"]) == 0
    scores = tmp_path / "scores"
    assert main(["evaluate", "--model", model, "--data", str(folder), "--out", str(scores)]) == 0
    capsys.readouterr()
    outputs = ["--jsonl", "--html", str(tmp_path / "pages"), "--txt-dir", str(tmp_path / "texts")]
    assert main(["caption", str(folder), "--model", model, *outputs]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({line["image"] for line in lines}) == len(list((tmp_path / "texts").iterdir())) == 8
    assert len(list((tmp_path / "pages").glob("*.html"))) == 9
    assert main(["caption", str(folder), "--model", model, "--txt"]) == 1
    assert "in a shard, so no text file goes beside it; give --txt-dir" in capsys.readouterr().err
