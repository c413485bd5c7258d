"""The files that `captioning caption` writes, and names that are hostile to terminals."""

import csv
import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image

from captioning.captioner import load
from captioning.commands import main
from captioning.commands.caption_photos import text_names
from captioning.data.readers import CaptionTable
from captioning.errors import UNPRINTABLE
from tests.conftest import draw_photos, refusal

Capture = pytest.CaptureFixture[str]

NAMES = [b"caf\xe9.jpg", b"a\nb.jpg", b"c\x1b[31m.jpg", "d\u202e.jpg".encode(), b"e\t.jpg"]

SHOWN = [r"a\nb.jpg", r"c\x1b[31m.jpg", r"caf\udce9.jpg", r"d\u202e.jpg", r"e\t.jpg"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of two photos; the name of one is that of an index of pages."""
    draw_photos(tmp_path / "photos", "a.jpg", "index.png")
    return tmp_path / "photos"


@pytest.fixture
def caption(checkpoint: Path, photos: Path) -> list[str]:
    return ["caption", str(photos), "--model", str(checkpoint), "--device", "cpu"]


@pytest.fixture
def expected(checkpoint: Path, photos: Path) -> dict[str, str]:
    """The caption of each photo, by its name."""
    paths = sorted(photos.iterdir())
    return {path.name: each.text for path, each in zip(paths, load(checkpoint)(paths), strict=True)}


def test_text_files_go_to_a_folder_with_prefix_and_suffix(
    caption: list[str], photos: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    around = ["--prefix", "photo of ", "--suffix", ", 35 mm"]
    assert main([*caption, "--txt-dir", str(tmp_path / "texts"), *around]) == 0
    assert (tmp_path / "texts/a.txt").read_text() == f"photo of {expected['a.jpg']}, 35 mm\n"
    assert {path.suffix for path in photos.iterdir()} == {".jpg", ".png"}


def test_files_are_whole_where_nobody_reads_what_is_printed(
    caption: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as after head -1
    with os.fdopen(writing, "w", buffering=1) as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert main([*caption, "--csv", str(tmp_path / "all.csv")]) == 0
    with (tmp_path / "all.csv").open(newline="") as file:
        assert [row["caption"] for row in csv.DictReader(file)] == list(expected.values())


def test_words_of_the_user_are_not_replaced_unless_asked_for(
    caption: list[str], photos: Path, expected: dict[str, str], capsys: Capture
) -> None:
    (photos / "a.txt").write_text("mine")
    error = refusal([*caption, "--txt"], capsys, code=1)
    assert "a.txt: exists; give --skip-existing" in error
    assert main([*caption, "--txt", "--skip-existing"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line == f"{photos / 'index.png'}\t{expected['index.png']}"
    assert (photos / "a.txt").read_text() == "mine"
    assert main([*caption, "--txt", "--skip-existing"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*caption, "--txt", "--overwrite"]) == 0
    assert (photos / "a.txt").read_text() == f"{expected['a.jpg']}\n"


def test_photos_of_one_name_have_a_text_file_each() -> None:
    photos = [Path("p/a.heic"), Path("p/a.jpg"), Path("q/a.jpg"), Path("p/a.heic")]
    names = text_names(photos)
    assert {str(path) for path in names.values()} == {"p/a.txt", "p/a.jpg.txt", "q/a.txt"}


def test_a_sentence_has_a_capital_and_a_full_stop(
    caption: list[str], expected: dict[str, str], capsys: Capture
) -> None:
    text = expected["a.jpg"]
    sentence = f"{text[0].upper()}{text[1:]}."
    for option in ([], ["--jsonl"]):
        assert main([*caption, "--sentence", *option]) == 0
        line = capsys.readouterr().out.splitlines()[0]
        assert (json.loads(line)["caption"] if option else line.split("\t")[1]) == sentence


def test_a_table_of_captions_is_one_that_a_training_reads(
    caption: list[str], photos: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    assert main([*caption, "--csv", str(tmp_path / "captions.csv")]) == 0
    with (tmp_path / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == sorted(map(str, photos.iterdir()))
    assert [row["caption"] for row in rows] == list(expected.values())
    records = CaptionTable(tmp_path, images=tmp_path).read("train")
    assert {record.captions[0] for record in records} <= set(expected.values())


def test_an_index_leads_to_the_page_of_each_photo(
    caption: list[str], tmp_path: Path, expected: dict[str, str]
) -> None:
    assert main([*caption, "--html", str(tmp_path / "pages")]) == 0
    index = (tmp_path / "pages/index.html").read_text()
    links = re.findall(r'<a href="(.*?)"><img src="data:image/jpeg;base64,', index)
    assert links == ["a.html", "index-2.html"]
    assert all((tmp_path / "pages" / link).is_file() for link in links)
    for text in expected.values():
        assert text[1:] in index
    assert not re.search(r"<script[^>]|https?:|@import|url\(", index)


def test_an_animation_has_a_frame_per_word(
    caption: list[str], tmp_path: Path, expected: dict[str, str]
) -> None:
    assert main([*caption, "--gif", str(tmp_path / "gifs")]) == 0
    with Image.open(tmp_path / "gifs/a.gif") as animation:
        assert (animation.format, animation.n_frames) == (  # type: ignore[attr-defined]
            "GIF",
            len(expected["a.jpg"].split()),
        )


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of photos whose names move cursors."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in NAMES:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:  # noqa: PTH123 - bytes
            Image.effect_noise((48, 48), 50).save(file, "JPEG")
    return folder


def test_every_photo_is_one_line_whatever_its_name_holds(
    checkpoint: Path, hostile: Path, capsys: Capture
) -> None:
    command = ["caption", str(hostile), "--model", str(checkpoint)]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{hostile}/{name}" for name in SHOWN]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr().out
    assert not UNPRINTABLE.search(printed.replace("\n", ""))
    names = sorted(os.fsencode(json.loads(line)["image"]) for line in printed.splitlines())
    assert names == sorted(os.fsencode(hostile) + b"/" + name for name in NAMES)
    for photo in hostile.iterdir():
        photo.write_bytes(b"text")
    assert main(command) == 1
    errors = capsys.readouterr().err.splitlines()
    expected = [f"captioning: {hostile}/{name}: not an image" for name in SHOWN]
    assert [line.partition(" that")[0] for line in errors] == expected


def test_pages_and_pictures_of_such_photos_are_written(
    checkpoint: Path, hostile: Path, tmp_path: Path
) -> None:
    Image.effect_noise((48, 48), 50).save(hostile / "n.jpg")
    (hostile / "n.jpg").rename(hostile / f"{'n' * 251}.jpg")
    places = ["--overlay", str(tmp_path / "o"), "--html", str(tmp_path / "h")]
    assert main(["caption", str(hostile), "--model", str(checkpoint), *places]) == 0
    assert len(list((tmp_path / "o").iterdir())) == len(NAMES) + 1
    assert len(list((tmp_path / "h").iterdir())) == len(NAMES) + 2  # with the index
