import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

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


def contents(folder: Path) -> dict[str, bytes]:
    """Every file except the lock, hidden ones too."""
    files = (path for path in folder.iterdir() if path.name != ".lock")
    return {path.name: path.read_bytes() for path in files}


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes of each shard when it is written again."""
    stats = {path.name: path.stat() for path in folder.glob("captions-*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


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


@pytest.mark.integration
def test_a_killed_captioning_goes_on_with_what_is_missing(checkpoint: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.png"  # so that reading gives the time to kill
    Image.effect_noise((1200, 1200), 80).save(large)
    (tmp_path / "list.txt").write_text(f"{large}\n" * 60)
    listed = ["caption", "--list", str(tmp_path / "list.txt"), "--model", str(checkpoint)]
    command = [*listed, "--device", "cpu", "--batch-size", "2", "--shard-size", "2", "--out"]
    folder = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-m", "captioning", *command, str(folder)])
    while process.poll() is None and not (folder / "captions-00003.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = identities(folder)
    assert 4 <= len(finished) < 30
    (folder / ".captions-00099.half.jsonl").write_text('{"image": ')  # as a kill may leave it

    assert main([*command, str(folder)]) == 0
    assert identities(folder).items() >= finished.items()
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_removed_shard_is_written_again_the_same(caption: list[str], tmp_path: Path) -> None:
    command = bulk(caption, tmp_path / "out", "--sample", "--temperature", "2", "--seed", "3")
    main(command)
    before, untouched = contents(tmp_path / "out"), identities(tmp_path / "out")
    (tmp_path / "out/captions-00002.jsonl").unlink()
    assert main(command) == 1
    assert contents(tmp_path / "out") == before
    after = identities(tmp_path / "out")
    assert {name for name in after if after[name] == untouched[name]} == {
        f"captions-{number:05d}.jsonl" for number in (0, 1, 3)
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--beam", "3"], "begun with another search, width 2 and not width 3"),
        (["--list", "more.txt"], "begun with another list, None and not more.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_other_settings_are_refused_by_name(
    caption: list[str], tmp_path: Path, options: list[str], expected: str, capsys: Capture
) -> None:
    main(bulk(caption, tmp_path / "out"))
    assert expected in refusal(bulk(caption, tmp_path / "out", *options), capsys)


def test_captions_without_a_manifest_are_refused(
    caption: list[str], tmp_path: Path, capsys: Capture
) -> None:
    main(bulk(caption, tmp_path / "out"))
    (tmp_path / "out/manifest.json").unlink()
    assert "without the manifest.json" in refusal(bulk(caption, tmp_path / "out"), capsys)


def test_no_photos_at_all_are_an_error_that_leaves_no_captions(
    checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "list.txt").write_text("\n")
    listed = ["--list", str(tmp_path / "list.txt"), "--out", str(tmp_path / "out")]
    assert "no photos" in refusal(["caption", *listed, "--model", str(checkpoint)], capsys)
    assert not contents(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--ray", "local"], "give --out"),
        (["--shard-size", "10"], "give --out"),
        (["--out", "captions", "--overlay", "overlays"], "leave out either"),
        (["--out", "captions", "--html", "pages"], "leave out either"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together(
    caption: list[str], options: list[str], expected: str, capsys: Capture
) -> None:
    assert expected in refusal([*caption, *options], capsys)


def test_a_list_for_shards_is_a_file_that_is_read_again(
    checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    piped = ["--list", str(tmp_path / "pipe"), "--out", str(tmp_path / "out")]
    error = refusal(["caption", *piped, "--model", str(checkpoint)], capsys)
    assert "write the list to a file" in error


def test_a_list_is_captioned_without_out_too(
    caption: list[str], photos: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "list.txt").write_text(f"{photos / '6.png'}\n{photos / '5.png'}\n")
    listed = ["caption", "--list", str(tmp_path / "list.txt"), *caption[2:]]
    assert main(listed) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split("\t")[0]).name for line in lines] == ["6.png", "5.png"]
