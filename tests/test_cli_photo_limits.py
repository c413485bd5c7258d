import os
from pathlib import Path

import pytest
from PIL import Image

import captioning
from captioning.cli import caption, main
from captioning.cli.program import parser_for
from captioning.data.images import MEGAPIXELS, MOST_MEGAPIXELS, PhotoSizeError
from captioning.errors import UsageError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((300, 300), 50).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_an_option_says_how_many_pixels_are_read(
    checkpoint: Path, photo: Path, capsys: Capture
) -> None:
    arguments = ["caption", str(photo), "--model", str(checkpoint), "--max-megapixels"]
    assert main([*arguments, "0.09"]) == 0
    capsys.readouterr()
    assert main([*arguments, "0.08"]) == 1
    shown = capsys.readouterr()
    assert shown.err == (
        f"captioning: {photo}: 300 x 300 pixels are more than the 0.08 million that are read here; "
        "scale the photo down, or raise max-megapixels\n"
    )
    assert shown.out == ""


def test_the_data_set_check_counts_photos_that_are_too_large(
    shapes_data: Path, capsys: Capture
) -> None:
    assert main(["check", str(shapes_data), "--max-megapixels", "0.001"]) == 1
    assert "train: unreadable images (6)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "value"), [("caption", "0"), ("check", "nan"), ("evaluate", "179"), ("score", "x")]
)
def test_a_limit_out_of_range_is_an_error_of_the_option(
    command: str, value: str, capsys: Capture
) -> None:
    assert main([command, "x", f"--max-megapixels={value}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("captioning: argument --max-megapixels: ")
    assert error.count("\n") == 1


def test_the_help_states_the_default_limit_and_the_largest_one(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["caption", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"(default: {MEGAPIXELS:g}; at most {MOST_MEGAPIXELS:g})" in shown


def test_in_python_the_limit_is_an_argument(checkpoint: Path, photo: Path) -> None:
    assert captioning.load(checkpoint, max_megapixels=0.09)([photo])
    with pytest.raises(PhotoSizeError, match=r"more than the 0\.08 million"):
        captioning.load(checkpoint, max_megapixels=0.08)([photo])


def test_in_python_the_limit_is_that_of_every_member_of_an_ensemble(
    checkpoint: Path, photo: Path
) -> None:
    with pytest.raises(PhotoSizeError):
        captioning.load([checkpoint, checkpoint], max_megapixels=0.08)([photo])


def test_a_configuration_sets_the_limit(tiny_config: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["train", "--config", str(tiny_config), "--trainer.default_root_dir", str(tmp_path)]
    assert main([*arguments, "--data.max_megapixels", "0.002"]) == 1
    assert "48 x 48 pixels are more than the 0.002 million" in capsys.readouterr().err


def test_a_pipe_that_is_named_like_a_photo_is_one_line(
    checkpoint: Path, photo: Path, tmp_path: Path, capsys: Capture
) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    photos = [str(tmp_path / "pipe.jpg"), str(photo)]
    assert main(["caption", *photos, "--model", str(checkpoint)]) == 1
    shown = capsys.readouterr()
    assert shown.err == (
        f"captioning: {tmp_path}/pipe.jpg: a pipe or a device; give a regular file\n"
    )
    assert shown.out.startswith(f"{photo}\t")


def test_endless_photos_do_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.jpg\n" * 3)
    arguments = ["caption", "--list", str(tmp_path / "list.txt"), "--model", "x"]
    with pytest.raises(UsageError, match="more than 2 photos; give --out"):
        caption.run(parser_for("caption").parse_args(arguments), most_photos=2)
