"""`captioning caption`: lines, JSON, texts, tables, pictures and pages of photos."""

import csv
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioning.captioner import Caption, load
from captioning.commands import main
from captioning.data.descriptions import Descriptions, sidecar_of
from captioning.data.images import find_photos, output_names
from captioning.data.readers import CaptionTable
from captioning.data.xmp import Xmp
from captioning.errors import UNPRINTABLE, InputError
from tests.conftest import draw_photos, refusal
from tests.data.test_descriptions import photo_with_iptc

Capture = pytest.CaptureFixture[str]

LONG = "n" * 251 + ".jpg"

# Names of photos that move cursors, that turn writing, or that leave no room for a suffix.
NAMES = [b"caf\xe9.jpg", b"a\nb.jpg", b"c\x1b[31m.jpg", "d\u202e.jpg".encode(), b"e\t.jpg"]
NAMES += [LONG.encode()]

SHOWN = [r"a\nb.jpg", r"c\x1b[31m.jpg", r"caf\udce9.jpg", r"d\u202e.jpg", r"e\t.jpg", LONG]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three photos, of which two share a name and one has that of an index of pages."""
    draw_photos(tmp_path / "photos", "a.jpg", "index.png", "more/a.jpg")
    return tmp_path / "photos"


@pytest.fixture
def caption(model: list[str], photos: Path) -> list[str]:
    return ["caption", str(photos), *model]


@pytest.fixture
def expected(checkpoint: Path, photos: Path) -> dict[Path, Caption]:
    """The caption of each photo."""
    paths = [photos / name for name in ("a.jpg", "index.png", "more/a.jpg")]
    return dict(zip(paths, load(checkpoint)(paths), strict=True))


def shown_on(page: Path) -> dict[str, Any]:
    [data] = re.findall(r"data-attention-view>(.*?)</script>", page.read_text())
    return json.loads(data)


def test_each_photo_gives_one_line_of_path_and_caption(
    model: list[str], expected: dict[Path, Caption], capsys: Capture
) -> None:
    paths = [*expected][1::-1]
    assert main(["caption", *map(str, paths), *model, "--max-megapixels", "0.0024"]) == 0
    lines = "".join(f"{path}\t{expected[path].text}\n" for path in paths)
    assert capsys.readouterr() == (lines, "")


def test_json_lines_hold_words_probabilities_and_score(caption: list[str], capsys: Capture) -> None:
    assert main([*caption, "--json"]) == 0
    for line in map(json.loads, capsys.readouterr().out.splitlines()):
        assert set(line) == {"image", "caption", "score", "words"}
        assert line["caption"] == " ".join(entry["word"] for entry in line["words"])
        assert all(0 < entry["probability"] <= 1 for entry in line["words"])
        assert line["score"] < 0


def test_numbers_have_four_digits_in_every_output(
    calibrated: list[str], photos: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos), *calibrated]
    for options in (["--json"], ["--csv", "-"], ["--json", "--text", "a red circle"]):
        assert main([*command, *options]) == 0
        printed = capsys.readouterr().out.replace(str(photos), "")
        numbers = re.findall(r"\d[\d.]*(?:e-\d+)?", printed)
        assert numbers
        assert all(float(number) == float(f"{float(number):.4g}") for number in numbers)
    caption = load(calibrated[1])(photos / "a.jpg")
    assert caption.confidence == pytest.approx(0.268941, abs=1e-6)  # all digits in Python
    assert caption.as_json()["confidence"] == 0.2689
    assert replace(caption, score=-2.34567e-5).as_json()["score"] == -2.346e-05


def test_a_given_caption_is_read_instead_of_written(caption: list[str], capsys: Capture) -> None:
    assert main([*caption, "--json", "--text", "A red circle."]) == 0
    for line in map(json.loads, capsys.readouterr().out.splitlines()):
        assert line["caption"] == "a red circle"
        assert all(len(entry["runners_up"]) == 3 for entry in line["words"])
    assert main([*caption, "--text", "A red circle."]) == 0
    for text in capsys.readouterr().out.splitlines():
        assert re.fullmatch(r"[^\t]+\ta 0\.\d\d red 0\.\d\d circle 0\.\d\d", text)


def test_pages_show_all_captions_their_maps_and_alternatives(
    caption: list[str], tmp_path: Path, capsys: Capture
) -> None:
    pages, names = tmp_path / "pages", ["a.html", "index.png.html", "more/a.html"]
    maps = ["--map", "grad-cam", "--map", "attention"]
    assert main([*caption, "--beam", "2", "--json", "--html", str(pages), *maps]) == 0
    written = {path.relative_to(pages).as_posix() for path in pages.rglob("*.html")}
    assert written == {*names, "index.html"}
    index = (pages / "index.html").read_text()
    assert re.findall(r' href="(.*?)"><img src="data:image/jpeg;base64,', index) == names
    assert not re.search(r"<script[^>]|https?:|@import|url\(", index)
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    for line, name in zip(lines, names, strict=True):
        shown = shown_on(pages / name)
        assert shown["title"] == Path(line["image"]).name
        best, other = shown["captions"]
        assert best["caption"] == line["caption"]
        assert line["caption"][1:] in index
        assert all(len(word["runners_up"]) == 3 for word in best["words"])
        for each in (best, other):
            assert [found["map"] for found in each["maps"]] == maps[1::2]


def links(page: Path) -> list[tuple[str, str]]:
    """The addresses and the words of the links of a photo's page."""
    return re.findall(r'<a href="(.*?)" .*?>(.*?)</a>', page.read_text())


def test_pages_link_to_the_gallery_and_the_photos_beside(
    caption: list[str], photos: Path, tmp_path: Path
) -> None:
    (photos / "b?.jpg").write_bytes(b"")
    (photos / "c#.jpg").write_bytes((photos / "a.jpg").read_bytes())
    pages, gallery = tmp_path / "pages", ("index.html", "All photos")
    assert main([*caption, str(photos / "a.jpg"), "--html", str(pages)]) == 1
    first, *middle, last = ["a.html", "c%23.html", "index.png.html", "more/a.html"]
    assert links(pages / first) == [gallery, (middle[0], "Next")]
    assert links(pages / "c#.html") == [gallery, (first, "Previous"), (middle[1], "Next")]
    above = [("../index.html", "All photos"), (f"../{middle[1]}", "Previous")]
    assert links(pages / last) == above
    assert (pages / "index.html").read_text().count("<li ") == 4


def test_the_page_of_a_single_photo_has_no_links(
    model: list[str], photos: Path, tmp_path: Path
) -> None:
    command = ["caption", str(photos / "a.jpg"), *model, "--html", str(tmp_path)]
    assert main(command) == 0
    assert links(tmp_path / "a.html") == []
    assert not (tmp_path / "index.html").exists()


def test_pictures_and_animations_are_of_the_chosen_map(
    model: list[str], expected: dict[Path, Caption], tmp_path: Path
) -> None:
    photo, *_ = expected
    for name in ("attention", "occlusion"):
        folder = str(tmp_path / name)
        drawn = ["--overlay", folder, "--gif", folder, "--map", name]
        assert main(["caption", str(photo), *model, *drawn]) == 0
    for file in ("a.png", "a.gif"):
        one, other = (tmp_path / name / file for name in ("attention", "occlusion"))
        assert one.read_bytes() != other.read_bytes()
    with Image.open(one) as animation:
        frames = animation.n_frames  # type: ignore[attr-defined]
        assert (animation.format, frames) == ("GIF", len(expected[photo].words))


def test_an_overlay_never_replaces_a_photo(
    caption: list[str], photos: Path, capsys: Capture
) -> None:
    before = (photos / "index.png").read_bytes()
    error = refusal([*caption, "--overlay", str(photos)], capsys)
    assert (photos / "index.png").read_bytes() == before
    assert "index.png; choose another folder" in error


def test_sentences_go_to_a_folder_with_prefix_and_suffix(
    caption: list[str], photos: Path, tmp_path: Path, expected: dict[Path, Caption], capsys: Capture
) -> None:
    around = ["--sentence", "--prefix", "photo of ", "--suffix", " 35 mm"]
    assert main([*caption, "--json", "--txt-dir", str(tmp_path / "texts"), *around]) == 0
    sentence = f"photo of {expected[photos / 'a.jpg'].sentence} 35 mm"
    assert (tmp_path / "texts/a.txt").read_text() == f"{sentence}\n"
    assert json.loads(capsys.readouterr().out.splitlines()[0])["caption"] == sentence
    assert not [*photos.rglob("*.txt")]


def test_words_of_the_user_are_not_replaced_unless_asked_for(
    model: list[str], expected: dict[Path, Caption], capsys: Capture
) -> None:
    (photo, before), (other, found), _ = expected.items()
    text, command = photo.with_suffix(".txt"), ["caption", str(photo), str(other), *model, "--txt"]
    text.write_text("mine")
    assert "a.txt: exists; give --skip-existing" in refusal(command, capsys)
    for printed in (f"{other}\t{found.text}\n", ""):
        assert main([*command, "--skip-existing"]) == 0
        assert capsys.readouterr().out == printed
        assert text.read_text() == "mine"
    assert main([*command, "--overwrite"]) == 0
    assert text.read_text() == f"{before.text}\n"


def test_no_earlier_text_stays_beside_a_photo_not_sure_of(
    calibrated: list[str], photos: Path, capsys: Capture
) -> None:
    unreadable, other = photos / "broken.jpg", photos / "notes.txt"
    unreadable.write_bytes(b"text")
    for path in (photos / "a.txt", unreadable.with_suffix(".txt"), other):
        path.write_text("earlier")
    command = ["caption", str(photos), *calibrated, "--txt", "--min-confidence"]
    assert "a.txt: exists; give --skip-existing" in refusal([*command, "0.3"], capsys)
    assert main([*command, "0.3", "--overwrite"]) == 1  # for the unreadable photo
    assert capsys.readouterr().out.count("\tnot sure\n") == 3
    assert {path.name for path in photos.rglob("*.txt")} == {"broken.txt", "notes.txt"}
    assert main([*command, "0.2", "--overwrite"]) == 1
    assert (photos / "a.txt").read_text() != "earlier"


def test_no_file_is_replaced_unless_asked_for(
    caption: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {
        "table.csv": ["--csv", "table.csv"],
        "overlays/a.png": ["--overlay", "overlays"],
        "animations/a.gif": ["--gif", "animations"],
        "pages/index.html": ["--html", "pages"],
        "pages/a.html": ["--html", "pages"],
        "texts/a.txt": ["--txt-dir", "texts"],
    }
    for name, output in options.items():
        file = Path(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        before = {*tmp_path.rglob("*")}
        error = refusal([*caption, *output], capsys)
        assert f"captioning: {name}: exists; " in error
        assert "--overwrite" in error
        assert file.read_text() == "mine"
        assert {*tmp_path.rglob("*")} == before
        file.unlink()
    for name in options:
        Path(name).write_text("mine")
    outputs = [argument for output in options.values() for argument in output]
    assert main([*caption, *dict.fromkeys(outputs), "--overwrite"]) == 0
    assert all(Path(name).read_text("latin-1") != "mine" for name in options)


def test_a_table_is_printed_with_nothing_beside_it(
    caption: list[str], tmp_path: Path, capsys: Capture
) -> None:
    table = tmp_path / "captions.csv"
    assert main([*caption, "--csv", str(table)]) == 0
    capsys.readouterr()
    assert main([*caption, "--csv", "-"]) == 0
    printed = capsys.readouterr().out
    assert [*csv.reader(printed.splitlines())] == [
        *csv.reader(table.read_text("utf-8-sig").splitlines())
    ]
    assert len(printed.splitlines()) == 4
    assert not Path("-").exists()


def test_keywords_are_in_json_tables_and_pages(
    calibrated: list[str], photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos / "a.jpg"), str(photos / "index.png"), *calibrated, "--json"]
    table, pages = tmp_path / "captions.csv", tmp_path / "pages"
    assert main([*command, "--csv", str(table), "--html", str(pages), "--keywords", "0.2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = pytest.importorskip("pandas").read_csv(table)
    assert table.read_bytes().startswith(b"\xef\xbb\xbf")  # by which Excel knows UTF-8
    for line, (_, row) in zip(lines, rows.iterrows(), strict=True):
        words = sorted(line["words"], key=lambda word: word["named"] or 0.0)
        named = {word["word"]: word["named"] for word in words if word["named"]}
        assert line["keywords"] == named
        assert [*line["keywords"].values()] == sorted(named.values(), reverse=True)
        likely = {word: named[word] for word in line["keywords"] if named[word] >= 0.2}
        words, chances = row["keywords"].split("; "), map(float, str(row["chances"]).split("; "))
        assert dict(zip(words, chances, strict=True)) == likely
        note = ", ".join(f"{word} {chance:.0%}" for word, chance in likely.items())
        assert note in (pages / "index.html").read_text()


def test_xmp_files_are_merged_left_out_and_removed_and_bad_ones_stay(
    calibrated: list[str], photos: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos), *calibrated, "--xmp"]
    bad, guarded, new = (photos / f"{name}.xmp" for name in ("a.jpg", "index.png", "more/a.jpg"))
    own = Xmp(b"", guarded)
    own.describe("Rex am Meer")
    bad.write_bytes(b"no XML")
    guarded.write_bytes(own.content)
    guarded.chmod(0o444)
    assert main(command) == 1
    output = capsys.readouterr()
    assert [line.partition("xmp: ")[2][:13] for line in output.err.splitlines()] == [
        "XMP that is n",
        "read-only; to",
    ]
    assert (bad.read_bytes(), guarded.read_bytes()) == (b"no XML", own.content)
    xmp = Xmp.read(new)
    assert output.out.endswith(f"{new.with_suffix('')}\t{xmp.description}\n")
    assert xmp.is_ours(xmp.description)
    assert b">0.2689</" in xmp.content
    assert {path.name for path in photos.rglob("*.xmp")} == {bad.name, guarded.name}
    guarded.chmod(0o644)
    bad.unlink()
    assert main([*command, "--skip-existing"]) == 0
    assert capsys.readouterr().out.count("\n") == 1  # of the photo without an XMP file
    assert main([*command, "--prefix", "photo: "]) == 0
    assert Xmp.read(guarded).description == "Rex am Meer"
    assert b">photo: " in guarded.read_bytes()  # as a model's caption
    assert Xmp.read(new).description.startswith("photo: ")
    bad.unlink()
    assert main([*command, "--min-confidence", "0.3"]) == 0
    assert not bad.exists()
    assert Xmp.read(guarded).description == "Rex am Meer"
    assert Xmp.read(new).description == ""


def test_an_xmp_file_begins_with_the_keywords_that_it_hides(
    calibrated: list[str], tmp_path: Path
) -> None:
    photo = tmp_path / "cat.jpg"
    photo_with_iptc(photo, b"\x1c\x02\x19\x00\x05Mitzi" + b"\x1c\x02\x19\x00\x03pet")
    command = ["caption", str(photo), *calibrated, "--xmp", "--keywords", "0"]
    assert main(command) == 0
    sidecar = sidecar_of(photo)
    assert b"GeneratedKeywords" in sidecar.read_bytes()
    assert Xmp.read(sidecar).keywords == ["Mitzi", "pet"]
    assert main(command) == 0
    assert Xmp.read(sidecar).keywords == ["Mitzi", "pet"]
    sidecar.rename(photo.with_suffix(".xmp"))
    assert Descriptions(photo).keywords == ["Mitzi", "pet"]  # not those of the model


def test_photos_of_one_name_have_a_text_file_each() -> None:
    photos = [Path("p/a.heic"), Path("p/a.jpg"), Path("q/a.jpg"), Path("p/a.heic")]
    names = output_names(photos, photos, folder=None, suffix=".txt")
    assert {str(path) for path in names.values()} == {"p/a.txt", "p/a.heic.txt", "q/a.txt"}
    assert names[Path("p/a.jpg")] == Path("p/a.txt")


def test_outputs_mirror_the_folders_of_the_photos(tmp_path: Path) -> None:
    draw_photos(tmp_path, "in/a.jpg", "in/x/a.jpg", "in/x/a.png", "in/index.jpg")
    found = [*find_photos([tmp_path / "in"])]
    names = output_names(
        found, [tmp_path / "in"], folder="out", suffix=".html", reserved_names=["index.html"]
    )
    assert [str(path) for path in names.values()] == [
        *("out/a.html", "out/index.jpg.html", "out/x/a.html", "out/x/a.png.html")
    ]
    (tmp_path / "in/a/a.jpg").parent.mkdir()
    shutil.copy(tmp_path / "in/a.jpg", tmp_path / "in/a")
    more = output_names(
        find_photos([tmp_path / "in"]), [tmp_path / "in"], folder="out", suffix=".html"
    )
    assert all(more[photo] == name for photo, name in names.items() if photo.stem != "index")
    pattern = f"{tmp_path}/in/**/a.jpg"
    by_pattern = output_names(find_photos([pattern]), [pattern], folder="out", suffix=".html")
    assert all(more[photo] == name for photo, name in by_pattern.items())
    with pytest.raises(
        InputError, match=r"out/a\.html: would be of .*; give the folder that holds"
    ):
        output_names(found, found, folder="out", suffix=".html")


def test_outputs_stay_in_their_folder_with_the_names_of_all_photos() -> None:
    other, long = Path("../other/dog.jpg"), Path("p", "x" * 205 + ".jpg")
    for roots in ([".", "../other"], ["../other", "."], ["*.jpg", other]):
        assert output_names([other], roots, folder="out", suffix=".png") == {
            other: Path("out/dog.png")
        }
    assert output_names([long], ["p"], folder=None, suffix=".txt")[long] == long.with_suffix(".txt")
    assert output_names(
        [Path("locked")], ["locked"], folder="out", suffix=".png"
    )  # a folder that is not read


def test_pictures_are_named_beside_photos_that_are_skipped(
    model: list[str], tmp_path: Path
) -> None:
    draw_photos(tmp_path / "p", "dog.jpg")
    command = ["caption", str(tmp_path / "p"), *model, "--txt", "--overlay", str(tmp_path / "o")]
    assert main(command) == 0
    draw_photos(tmp_path / "p", "dog.png")
    assert main([*command, "--skip-existing"]) == 0
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"dog.png", "dog.png.png"}


def test_folders_are_searched_without_what_is_excluded(
    model: list[str], photos: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos), *model, "--exclude", "mo*", "--exclude", "index.png"]
    assert main(command) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{photos / 'a.jpg'}\t")


def test_a_table_names_photos_from_its_folder_and_holds_no_formula(
    model: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    draw_photos(Path("photos"), "a.jpg", "b.jpg", "=c.jpg")
    table = ["--csv", "out/captions.csv", "--prefix", "=1+"]
    assert main(["caption", "photos", *model, *table]) == 0
    assert main(["check", "out"]) == 0, capsys.readouterr()
    with monkeypatch.context() as there:
        there.chdir("photos")
        assert main(["caption", "=c.jpg", *model, "--csv", "captions.csv"]) == 0
    for file in ("out/captions.csv", "photos/captions.csv"):
        cells = [cell for row in csv.reader(Path(file).read_text().splitlines()) for cell in row]
        assert not [cell for cell in cells if cell.startswith("=")]
    assert main(["check", "photos/captions.csv"]) == 0, capsys.readouterr()


def test_a_training_reads_the_table_whoever_reads_what_is_printed(
    caption: list[str],
    tmp_path: Path,
    expected: dict[Path, Caption],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as after head -1
    with os.fdopen(writing, "w", buffering=1) as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert main([*caption, "--csv", str(tmp_path / "captions.csv")]) == 0
    with (tmp_path / "captions.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = [(Path(row["file_name"]), row["caption"]) for row in csv.DictReader(file)]
    assert rows == [(path, found.text) for path, found in expected.items()]
    reader = CaptionTable(tmp_path, images=tmp_path, val_fraction=0.0)
    records = reader.read().records("train")
    assert [(record.image, record.captions) for record in records] == [
        (path, (text,)) for path, text in rows
    ]


def test_a_photo_of_any_name_is_one_line_and_a_page(
    model: list[str], tmp_path: Path, capsys: Capture
) -> None:
    folder, pages = tmp_path / "hostile", tmp_path / "pages"
    folder.mkdir()
    for name in NAMES:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:  # noqa: PTH123 - bytes
            Image.effect_noise((48, 48), 50).save(file, "JPEG")
    command = ["caption", str(folder), *model]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{folder}/{name}" for name in SHOWN]
    assert main([*command, "--json", "--html", str(pages)]) == 0
    assert len([*pages.iterdir()]) == len(NAMES) + 1  # with the index
    printed = capsys.readouterr().out
    assert not UNPRINTABLE.search(printed.replace("\n", ""))
    names = sorted(os.fsencode(json.loads(line)["image"]) for line in printed.splitlines())
    assert names == sorted(os.fsencode(folder) + b"/" + name for name in NAMES)
    drawn = ["caption", f"{folder}/caf\udce9.jpg", *model, "--overlay", str(pages)]
    assert main(drawn) == 0
    capsys.readouterr()
    assert (pages / "caf\udce9.png").exists()
    for photo in folder.iterdir():
        if photo.name != LONG:
            photo.write_bytes(b"text")
    assert main(command) == 1  # and the other photo is captioned
    shown = capsys.readouterr()
    assert shown.out == f"{lines[-1]}\n"
    expected = [f"captioning: {folder}/{name}: not an image" for name in SHOWN[:-1]]
    assert [line.partition(" that")[0] for line in shown.err.splitlines()] == expected
