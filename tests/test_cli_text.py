"""Names of files, words and categories that are hostile to terminals."""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.cli import main
from captioning.terminal import UNPRINTABLE

Run = Callable[..., list[str]]

NAMES = [b"caf\xe9.jpg", b"a\nb.jpg", b"c\x1b[31m.jpg", "d\u202e.jpg".encode(), b"e\t.jpg"]
SHOWN = [r"a\nb.jpg", r"c\x1b[31m.jpg", r"caf\xe9.jpg", r"d\u202e.jpg", r"e\t.jpg"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in NAMES:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:  # noqa: PTH123 - bytes
            Image.effect_noise((48, 48), 50).save(file, "JPEG")
    return folder


@pytest.fixture(params=["ascii"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with a strict stdout; gives the lines that it printed, if it ended well."""

    def lines(*arguments: object, code: int = 0) -> list[str]:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=request.param, errors="strict")
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([str(argument) for argument in arguments]) == code
        assert isinstance(stream.buffer, io.BytesIO)
        printed = stream.buffer.getvalue().decode(request.param)
        assert not UNPRINTABLE.search(printed.replace("\n", "").replace("\t", ""))
        return printed.splitlines()

    return lines


def test_every_photo_is_one_line_whatever_its_name_holds(
    checkpoint: Path, photos: Path, run: Run
) -> None:
    cells = [line.split("\t") for line in run("caption", photos, "--model", checkpoint)]
    assert [name for name, _ in cells] == [f"{photos}/{name}" for name in SHOWN]


def test_json_keeps_names_unchanged(checkpoint: Path, photos: Path, run: Run) -> None:
    lines = run("caption", photos, "--model", checkpoint, "--json")
    names = sorted(os.fsencode(json.loads(line)["image"]) for line in lines)
    assert names == sorted(os.fsencode(photos) + b"/" + name for name in NAMES)


def test_what_is_wrong_with_such_a_photo_is_one_line(
    checkpoint: Path, photos: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for photo in photos.iterdir():
        photo.write_bytes(b"text")
    run("caption", photos, "--model", checkpoint, code=1)
    expected = [f"captioning: {photos}/{name}: not an image" for name in SHOWN]
    errors = capsys.readouterr().err.splitlines()
    assert [line.partition(" that")[0] for line in errors] == expected


def test_pages_and_pictures_of_such_photos_are_written(
    checkpoint: Path, photos: Path, tmp_path: Path, run: Run
) -> None:
    long = photos / f"{'n' * 251}.jpg"
    Image.effect_noise((48, 48), 50).save(photos / "n.jpg")
    (photos / "n.jpg").rename(long)
    places = ["--overlay", tmp_path / "o", "--html", tmp_path / "h"]
    run("caption", photos, "--model", checkpoint, *places)
    assert len(list((tmp_path / "o").iterdir())) == len(NAMES) + 1
    assert len(list((tmp_path / "h").iterdir())) == len(NAMES) + 2  # with the index


def test_bulk_captioning_goes_on_where_it_was_among_such_photos(
    checkpoint: Path, photos: Path, tmp_path: Path, run: Run
) -> None:
    command = ["caption", photos, "--model", checkpoint, "--out", tmp_path / "out"]
    assert run(*command, "--shard-size", 2) == [str(tmp_path / "out")]
    (tmp_path / "out/captions-00001.jsonl").unlink()
    run(*command, "--shard-size", 2)
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    assert len(lines) == len(NAMES)
    assert os.fsencode(json.loads(lines[2])["image"]).endswith(b"caf\xe9.jpg")


def test_the_checker_names_each_file_in_one_line(
    shapes_data: Path, tmp_path: Path, run: Run
) -> None:
    shutil.copytree(shapes_data, tmp_path / "data")
    file = next((tmp_path / "data/annotations").glob("captions_train*.json"))
    content = json.loads(file.read_text())
    content["images"][0]["file_name"] = "gone\n\x1b[2J.png"
    file.write_text(json.dumps(content))
    assert any(r"gone\n\x1b[2J.png" in line for line in run("check", tmp_path / "data", code=1))


def test_words_of_a_checkpoint_move_no_cursor(
    checkpoint: Path, photos: Path, tmp_path: Path, run: Run
) -> None:
    saved = torch.load(checkpoint, weights_only=True)
    words = saved["captioner"]["vocabulary"]
    saved["captioner"]["vocabulary"] = [f"{word}\n\x1b[2J\ud800" for word in words]
    torch.save(saved, tmp_path / "hostile.ckpt")
    photo = next(photos.iterdir())
    pages = ["--overlay", tmp_path / "o", "--html", tmp_path / "h"]
    [line] = run("caption", photo, "--model", tmp_path / "hostile.ckpt", *pages)
    assert r"\n\x1b[2J\ud800" in line
