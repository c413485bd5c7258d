"""Bulk captioning on machines of a Ray cluster, which are processes here."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from captioning.errors import InputError
from captioning.inference.ray_cluster import check_seen
from tests.conftest import draw_photos, refusal

pytestmark = pytest.mark.integration

MEMORY = 100 * 2**20
"""Of each machine's object store, in bytes; a container's /dev/shm may have no more."""

NOWHERE = "127.0.0.1:9"
"""Where no cluster answers."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A machine that only leads, and one with a core."""
    pytest.importorskip("ray", reason="no extra ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight photos, under 300 names."""
    folder = tmp_path / "photos"
    draw_photos(folder, *(f"{number:03d}.png" for number in range(8)))
    for number in range(8, 300):
        (folder / f"{number:03d}.png").hardlink_to(folder / f"{number % 8:03d}.png")
    return folder


def command(photos: Path, out: Path, *options: str) -> list[str]:
    given = ["--model", "shapes", "--device", "cpu", "--shard-size", "4", "--batch-size", "2"]
    return ["caption", photos.name, *given, "--out", str(out), *options]


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, list[str]]:
    """The exit code, stdout, and the lines of stderr that are not of progress."""
    out, errors = process.communicate(timeout=200)
    lines = [line for line in errors.splitlines() if not line.endswith(" left")]
    return process.returncode, out, lines


def started(arguments: list[str], photos: Path) -> "subprocess.Popen[str]":
    """The command in the folder of the photos, so that their paths are relative."""
    return subprocess.Popen(
        [sys.executable, "-m", "captioning", *arguments],
        cwd=photos.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_machine_that_dies_loses_no_photo(cluster: Any, photos: Path, tmp_path: Path) -> None:
    alone, out = tmp_path / "alone", tmp_path / "out"
    assert ended(started(command(photos, alone, "--sample"), photos)) == (0, f"{alone}\n", [])
    dying = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    arguments = command(photos, out, "--sample", "--ray")
    process = started([*arguments, cluster.address], photos)
    while len(list(out.glob("captions-*"))) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    cluster.remove_node(dying, allow_graceful=False)
    assert len(list(out.glob("captions-*"))) < 75
    assert ended(process) == (0, f"{out}\n", [])
    assert contents(out) == contents(alone)
    lines = [line for path in out.glob("captions-*") for line in path.read_text().splitlines()]
    assert len({json.loads(line)["image"] for line in lines}) == len(lines) == 300

    assert ended(started([*arguments, NOWHERE], photos)) == (0, f"{out}\n", [])


def test_a_damaged_photo_is_an_error_line_as_on_one_machine(
    cluster: Any, photos: Path, tmp_path: Path
) -> None:
    for path in list(photos.iterdir())[8:]:
        path.unlink()
    for path in sorted(photos.iterdir())[:5]:  # more than a shard
        path.unlink()
        path.write_text("no photo")
    found = []
    for name, options in (("alone", []), ("out", ["--ray", cluster.address])):
        code, _, errors = ended(started(command(photos, tmp_path / name, *options), photos))
        assert (code, len(errors)) == (1, 5), errors
        found.append((sorted(errors), contents(tmp_path / name)))
    assert found[0] == found[1]


def test_a_machine_without_the_photos_is_named(photos: Path) -> None:
    here, gone = (json.dumps({"image": str(photos / n)}) for n in ("000.png", "x"))
    check_seen([gone], blind="far")
    check_seen([here], blind="")
    with pytest.raises(InputError, match=r"machine far sees no .*000"):
        check_seen([here, gone], blind="far")


@pytest.mark.parametrize("address", [NOWHERE, "x"])
def test_an_address_where_no_cluster_answers_is_one_line(
    photos: Path, tmp_path: Path, address: str
) -> None:
    pytest.importorskip("ray", reason="no extra ray")
    code, _, errors = ended(started(command(photos, tmp_path / "out", "--ray", address), photos))
    assert (code, len(errors)) == (1, 1), errors
    assert errors[0].startswith(f"captioning: --ray {address}: no Ray cluster answers")


def test_without_the_extra_one_line_names_it(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = refusal(command(photos, photos / "out", "--ray", "local"), capsys)
    assert line == "captioning: this needs ray; run pip install 'captioning[ray]'"
