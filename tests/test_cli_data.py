"""Data sets of any layout on the command line."""

from pathlib import Path

import pytest
from PIL import Image

from captioning.cli import main
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]


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


def test_check_takes_the_folder_of_the_photos_and_the_column_of_the_captions(
    table: Path, capsys: Capture
) -> None:
    assert "columns are Photo, Title, Words" in refusal(["check", str(table)], capsys)
    options = ["--images", str(table.parent / "photos"), "--caption-column", "Title"]
    assert main(["check", str(table), *options]) == 0
    assert "No problems found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["ground"], "split 'val' has no boxes"),
        (
            ["calibrate", "model.safetensors", "--features", "gone"],
            "has no features; omit --features",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_of_a_split_take_them_too(
    table: Path, command: list[str], told: str, capsys: Capture
) -> None:
    options = [*command, "--model", "shapes", "--data", str(table), "--device", "cpu"]
    assert "columns are Photo, Title, Words" in refusal(options, capsys)
    images = ["--images", str(table.parent / "photos")]
    assert told in refusal([*options, *images, "--caption-column", "Title"], capsys)


@pytest.mark.integration
def test_evaluate_scores_what_check_finds(table: Path, capsys: Capture) -> None:
    options = ["--images", str(table.parent / "photos"), "--caption-column", "words"]
    data = ["--data", str(table), "--split", "Validation", "--out", str(table.parent / "out")]
    assert main(["evaluate", "--model", "shapes", "--device", "cpu", *data, *options]) == 0
    printed = capsys.readouterr()
    assert "BLEU-4" in printed.out
    assert "CIDEr of one image is always 0" in printed.err


@pytest.mark.integration
def test_a_training_reads_a_layout_without_splits(table: Path, capsys: Capture) -> None:
    arguments = {
        "data.reader": "captioning.data.readers.CaptionTable",
        "data.reader.init_args.root": table,
        "data.reader.init_args.images": table.parent / "photos",
        "data.reader.init_args.caption_column": "Words",
        "data.min_count": 1,
        "data.workers": 0,
        "trainer.fast_dev_run": "true",
        "trainer.accelerator": "cpu",
    }
    given = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    assert main(["train", "--config", "shapes", *given]) == 0
