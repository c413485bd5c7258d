import json
import os
from pathlib import Path

import pytest

from captioning.commands import main
from tests.conftest import draw_photos, refusal

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of seven photos in two folders; the fourth of them is no photo."""
    folder = tmp_path / "photos"
    draw_photos(folder, "a/1.png", "a/2.png", "b/3.png", "b/4.png", "5.png", "6.png")
    (folder / "a/bad.png").write_text("no picture")
    return folder


@pytest.fixture
def caption(checkpoint: Path, photos: Path) -> list[str]:
    """The command without a place for the captions: shards of two photos in batches of two."""
    settings = ["--model", str(checkpoint), "--device", "cpu", "--batch-size", "2"]
    return ["caption", str(photos), *settings]


def bulk(caption: list[str], folder: Path, *options: str) -> list[str]:
    return [*caption, "--out", str(folder), "--shard-size", "2", *options]


def test_shards_hold_lines_of_json_and_errors(
    caption: list[str], tmp_path: Path, capsys: Capture
) -> None:
    main([*caption, "--json"])
    printed = capsys.readouterr().out.splitlines()
    assert main(bulk(caption, tmp_path / "out")) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(tmp_path / "out")]
    assert err.count("bad.png: not an image") == 1
    shards = sorted((tmp_path / "out").glob("captions-*.jsonl"))
    lines = [line for shard in shards for line in shard.read_text().splitlines()]
    assert [len(shard.read_text().splitlines()) for shard in shards] == [2, 2, 2, 1]
    assert [line for line in lines if "error" not in json.loads(line)] == printed
    [bad] = [json.loads(line) for line in lines if "error" in json.loads(line)]
    assert bad["image"].endswith("a/bad.png")
    assert "not an image" in bad["error"]


def test_other_settings_are_refused_by_name(
    caption: list[str], tmp_path: Path, capsys: Capture
) -> None:
    main(bulk(caption, tmp_path / "out"))
    wider = refusal(bulk(caption, tmp_path / "out", "--beam", "3"), capsys)
    assert "begun with another search.width, 2 and not 3" in wider
    (tmp_path / "out/manifest.json").unlink()
    assert "manifest.json: missing or damaged" in refusal(bulk(caption, tmp_path / "out"), capsys)


def test_a_list_is_captioned_and_may_be_a_pipe_without_out(
    caption: list[str], photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "list.txt").write_text(f"{photos / '6.png'}\n{photos / '5.png'}\n")
    os.mkfifo(tmp_path / "pipe")  # which cannot be read again
    piped = ["--list", str(tmp_path / "pipe"), "--out", str(tmp_path / "out")]
    assert "write the list to a file" in refusal(["caption", *piped, *caption[2:]], capsys)
    listed = ["caption", "--list", str(tmp_path / "list.txt"), *caption[2:]]
    assert main(listed) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split("\t")[0]).name for line in lines] == ["6.png", "5.png"]
    (tmp_path / "list.txt").write_text("\n")
    assert "no photos" in refusal(bulk(listed, tmp_path / "out"), capsys)
    assert not list((tmp_path / "out").glob("[!.]*"))
