"""The files that `captioning caption` writes beside the lines that it prints."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.captioner import load
from captioning.cli import main
from captioning.cli.caption_outputs import Outputs, text_names
from captioning.data.readers import CaptionTable
from captioning.errors import INTERRUPTED, InputError
from tests.conftest import draw_photos, refusal

Capture = pytest.CaptureFixture[str]


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


def test_a_text_file_beside_each_photo_has_its_caption(
    caption: list[str], photos: Path, expected: dict[str, str]
) -> None:
    assert main([*caption, "--txt"]) == 0
    assert (photos / "a.txt").read_text() == f"{expected['a.jpg']}\n"
    assert (photos / "index.txt").read_text() == f"{expected['index.png']}\n"


def test_text_files_go_to_a_folder_and_have_what_comes_before_and_after(
    caption: list[str], photos: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    around = ["--prefix", "photo of ", "--suffix", ", 35 mm"]
    assert main([*caption, "--txt-dir", str(tmp_path / "texts"), *around]) == 0
    assert (tmp_path / "texts/a.txt").read_text() == f"photo of {expected['a.jpg']}, 35 mm\n"
    assert {path.suffix for path in photos.iterdir()} == {".jpg", ".png"}


def test_words_of_the_user_are_not_replaced_unless_asked_for(
    caption: list[str], photos: Path, expected: dict[str, str], capsys: Capture
) -> None:
    (photos / "a.txt").write_text("mine")
    error = refusal([*caption, "--txt"], capsys, code=1)
    assert "a.txt: exists; --skip-existing keeps such text files, --overwrite replaces" in error
    assert main([*caption, "--txt", "--skip-existing"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line == f"{photos / 'index.png'}\t{expected['index.png']}"
    assert (photos / "a.txt").read_text() == "mine"
    assert main([*caption, "--txt", "--overwrite"]) == 0
    assert (photos / "a.txt").read_text() == f"{expected['a.jpg']}\n"


def test_an_interrupt_says_how_many_photos_are_done_and_how_to_go_on(
    caption: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write = Outputs.write

    def interrupted(outputs: Outputs, photo: Path, captions: Any) -> None:
        if photo.name == "index.png":
            raise KeyboardInterrupt
        write(outputs, photo, captions)

    monkeypatch.setattr(Outputs, "write", interrupted)
    assert main([*caption, "--txt"]) == INTERRUPTED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "captioning: interrupted after 1 of 2 photos; go on by --skip-existing"
    monkeypatch.undo()
    assert main([*caption, "--txt", "--skip-existing"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main([*caption, "--txt", "--skip-existing"]) == 0
    assert capsys.readouterr().out == ""


def test_a_mistyped_photo_is_named_before_a_model_is_loaded(capsys: Capture) -> None:
    given = ["caption", "nowhere.jpg", "a\n.png", "--model", "no model"]
    assert main(given) == 1
    assert capsys.readouterr().err.splitlines() == [
        "captioning: nowhere.jpg: no such file; check the path",
        r"captioning: a\n.png: no such file; check the path",
    ]


def test_photos_of_one_name_have_a_text_file_each() -> None:
    photos = [Path("p/a.heic"), Path("p/a.jpg"), Path("q/a.jpg"), Path("p/a.heic")]
    names = text_names(photos)
    assert {str(path) for path in names.values()} == {"p/a.txt", "p/a.jpg.txt", "q/a.txt"}


def test_a_text_file_never_replaces_a_photo() -> None:
    with pytest.raises(InputError, match=r"a\.txt: its text file .* would replace another"):
        text_names([Path("a.txt"), Path("a.txt.txt")])


def test_a_sentence_has_a_capital_and_a_full_stop_in_lines_and_json(
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
    assert not re.search(r"<script|https?:|@import|url\(", index)


def test_an_animation_has_a_frame_per_word(
    caption: list[str], tmp_path: Path, expected: dict[str, str]
) -> None:
    assert main([*caption, "--gif", str(tmp_path / "gifs")]) == 0
    with Image.open(tmp_path / "gifs/a.gif") as animation:
        assert (animation.format, animation.n_frames) == (  # type: ignore[attr-defined]
            "GIF",
            len(expected["a.jpg"].split()),
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--skip-existing"], "for text files; give --txt too"),
        (["--overwrite"], "for text files; give --txt too"),
        (["--out", "captions", "--txt"], "--txt is for printed captions"),
        (["--out", "captions", "--csv", "a.csv"], "--csv is for printed captions"),
        (["--out", "captions", "--sentence"], "--sentence is for printed captions"),
    ],
    ids=" ".join,
)
def test_options_without_an_effect_are_wrong_usage(
    options: list[str], expected: str, capsys: Capture
) -> None:
    assert expected in refusal(["caption", "a.jpg", *options], capsys, code=2)


def test_a_folder_is_reported_as_a_whole(caption: list[str], photos: Path, capsys: Capture) -> None:
    (photos / "img_1").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    (photos / "raw.cr3").write_bytes(b"nothing that is read")
    assert main(caption) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    named = [line.split(": ")[1] for line in err.splitlines()]
    assert named == [str(photos / "img_1"), str(photos / "raw.cr3")]
