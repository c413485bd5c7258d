import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data import feature_cache as cache_module
from captioning.data.feature_cache import FeatureCache
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from tests.data.conftest import cached


@pytest.fixture(autouse=True)
def two_rows_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "FEWEST_ROWS", 2)


def encoded(folder: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the photos that are encoded until the features are whole."""
    seen: list[str] = []
    read = Preprocessing.__call__

    def reading(self: Preprocessing, photo: Path) -> object:
        seen.append(photo.name)
        return read(self, photo)

    with monkeypatch.context() as patch:
        patch.setattr(Preprocessing, "__call__", reading)
        cached(folder, photos)
    return seen


def interrupted(folder: Path, photos: list[Path]) -> None:
    """Leave unfinished features behind: the fourth photo cannot be read."""
    whole = photos[3].read_bytes()
    photos[3].write_bytes(whole[:300] + bytes(len(whole) - 300))
    with pytest.raises(InputError, match=photos[3].name):
        cached(folder, photos)
    photos[3].write_bytes(whole)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_loses_no_finished_shard(
    photos: list[Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    two_threads: None,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    interrupted(folder, photos)
    assert encoded(folder, photos, monkeypatch) == [photo.name for photo in photos[2:]]
    cache, whole = FeatureCache(folder), cached(folder.with_name("whole"), photos)
    assert all(cache[photo].equal(whole[photo]) for photo in photos)
    assert encoded(folder, photos, monkeypatch) == []


PROGRAM = """
import sys, torch
from pathlib import Path
from torch import distributed
from captioning.data import feature_cache as cache_module
from captioning.data.feature_cache import feature_cache
from captioning.data.preprocessing import Preprocessing
from captioning.models import CNNEncoder

cache_module.FEWEST_ROWS = 2
torch.set_num_threads(1)
rank, place, folder, *photos = sys.argv[1:]
distributed.init_process_group("gloo", init_method=place, rank=int(rank), world_size=2)
torch.manual_seed(0)
feature_cache(folder, CNNEncoder("small", weights=None), Preprocessing(32),
              [Path(photo) for photo in photos], 2, workers=0)
"""


@pytest.mark.integration
def test_one_process_goes_on_after_two_were_killed(
    photos: list[Path], folder: Path, tmp_path: Path
) -> None:
    many = [Path(shutil.copy(photos[i % 6], tmp_path / f"photos/{i}.jpg")) for i in range(400)]
    command = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(
            [*command, str(rank), f"file://{tmp_path}/meeting", str(folder), *map(str, many)]
        )
        for rank in range(2)
    ]
    while len(list(folder.glob("features-*.npy"))) < 20:
        assert both[0].poll() is None
        time.sleep(0.001)
    for process in both:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("features-*.npy")}
    assert len(before) < 200
    cache, whole = cached(folder, many), cached(tmp_path / "whole", many)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    for photo in many:
        np.testing.assert_allclose(cache[photo], whole[photo], rtol=2e-3, atol=1e-3)
