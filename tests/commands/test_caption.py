"""`captioning caption`: lines, JSON, pictures and pages of photos."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from captioning.captioner import load
from captioning.commands import main
from tests.conftest import draw_photos, refusal

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three photos, one in a folder of its own and of another's name."""
    draw_photos(tmp_path / "photos", "a.jpg", "b.png", "more/a.jpg")
    return tmp_path / "photos"


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((300, 300), 50).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def output(capsys: Capture) -> tuple[list[str], list[str]]:
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


def test_each_photo_gives_one_line_of_path_and_caption(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    paths = [photos / "b.png", photos / "a.jpg"]
    assert main(["caption", *map(str, paths), "--model", str(checkpoint), "--device", "cpu"]) == 0
    captions = load(checkpoint)(paths)
    lines, errors = output(capsys)
    assert lines == [f"{path}\t{c.text}" for path, c in zip(paths, captions, strict=True)]
    assert not errors


def test_json_lines_hold_words_probabilities_and_score(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    main(["caption", str(photos), "--model", str(checkpoint), "--json"])
    lines, _ = output(capsys)
    for line in map(json.loads, lines):
        assert set(line) == {"image", "caption", "score", "words"}
        assert line["caption"] == " ".join(entry["word"] for entry in line["words"])
        assert all(0 < entry["probability"] <= 1 for entry in line["words"])
        assert line["score"] < 0


def test_a_given_caption_is_read_instead_of_written(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    options = ["caption", str(photos), "--model", str(checkpoint)]
    assert main([*options, "--json", "--text", "A red circle."]) == 0
    lines, _ = output(capsys)
    for line in map(json.loads, lines):
        assert line["caption"] == "a red circle"
        assert all(len(entry["runners_up"]) == 3 for entry in line["words"])
    assert main([*options, "--text", "A red circle."]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert re.fullmatch(r"[^\t]+\ta 0\.\d\d red 0\.\d\d circle 0\.\d\d", line)
    assert main([*options, "--text", "a zebra"]) == 1
    assert "'a zebra': the model does not know 'zebra'" in capsys.readouterr().err


def test_another_map_is_drawn_and_a_page_compares_several(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    command = ["caption", str(photos), "--model", str(checkpoint)]
    for name in ("attention", "occlusion"):
        assert main([*command, "--overlay", str(tmp_path / name), "--map", name]) == 0
    drawn = [(tmp_path / name / "a.png").read_bytes() for name in ("attention", "occlusion")]
    assert drawn[0] != drawn[1]
    both = ["--map", "grad-cam", "--map", "attention"]
    assert main([*command, "--html", str(tmp_path / "pages"), *both]) == 0
    page = (tmp_path / "pages" / "a.html").read_text()
    [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
    for caption in json.loads(shown)["captions"]:
        assert [each["map"] for each in caption["maps"]] == both[1::2]


def test_pages_show_all_captions_and_alternatives_to_each_word(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "pages"
    command = ["caption", str(photos), "--model", str(checkpoint), "--beam", "2", "--json"]
    assert main([*command, "--html", str(folder)]) == 0
    lines = [json.loads(line) for line in output(capsys)[0]]
    names = ["a.html", "b.html", "a-2.html"]
    assert {path.name for path in folder.iterdir()} == {*names, "index.html"}
    for line, name in zip(lines, names, strict=True):
        page = (folder / name).read_text()
        [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
        shown = json.loads(shown)
        assert shown["title"] == Path(line["image"]).name
        best, _ = shown["captions"]
        assert best["caption"] == line["caption"]
        assert all(len(word["runners_up"]) == 3 for word in best["words"])


def test_an_overlay_never_replaces_a_photo(checkpoint: Path, photos: Path, capsys: Capture) -> None:
    before = (photos / "b.png").read_bytes()
    folder = str(photos)
    assert main(["caption", folder, "--model", str(checkpoint), "--overlay", folder]) == 1
    assert (photos / "b.png").read_bytes() == before
    _, [error] = output(capsys)
    assert "b.png" in error
    assert "choose another folder" in error


def test_a_bad_photo_is_one_line_and_the_others_are_captioned(
    checkpoint: Path, photos: Path, capsys: Capture
) -> None:
    (photos / "b.png").write_text("no picture")
    assert main(["caption", str(photos), "--model", str(checkpoint)]) == 1
    lines, errors = output(capsys)
    assert [Path(line.split("\t")[0]).name for line in lines] == ["a.jpg", "a.jpg"]
    assert len(errors) == 1
    assert "b.png: not an image" in errors[0]


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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--greedy", "--length-penalty", "1"], "Greedy has no length penalty"),
        (["--device", "nonsense"], "no device 'nonsense'; give cpu"),
        (["--beam", "2", "--greedy"], "give one of them"),
        (["--no-repeats", "--model", "shapes"], "does not say which words people repeat"),
        (["--confidence"], "this model is not calibrated"),
        (["--out", "shards", "--map", "occlusion", "--overlay", "maps"], "--out writes JSON lines"),
        (["--out", "shards", "--captions", "2"], "--out writes JSON lines"),
        (["--ray", "auto"], "are for bulk captioning; give --out"),
        (["--avoid", "red", "--sample"], "leave out --greedy, --sample and --diverse"),
        (["--text", "a square", "--begin", "a"], "--text reads a caption"),
        (["--diverse"], "--diverse is for several captions by beam search; give --captions N"),
        (["--model", "no.ckpt"], "no.ckpt: no such model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_be_used_are_one_line(
    checkpoint: Path, photos: Path, options: list[str], expected: str, capsys: Capture
) -> None:
    model = [] if "--model" in options else ["--model", str(checkpoint)]
    command = ["caption", str(photos / "a.jpg"), *model, *options]
    assert expected in refusal(command, capsys)
