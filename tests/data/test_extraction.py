import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from captioning.data.extraction import feature_cache
from captioning.data.feature_cache import ANNOTATIONS, INDEX, FeatureCache
from captioning.data.images import read_image
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.unfinished_features import UNFINISHED, locked
from captioning.errors import InputError
from captioning.models import CNNEncoder

PREPROCESSING = Preprocessing(32)


def encoder(seed: int = 0) -> CNNEncoder:
    torch.manual_seed(seed)
    return CNNEncoder("small", weights=None)


@pytest.fixture
def photos(shapes_records: list[Record], tmp_path: Path) -> list[Path]:
    """Copies of six photos, which a test may change."""
    (tmp_path / "photos").mkdir()
    return [
        Path(shutil.copy(record.image, tmp_path / "photos" / record.image.name))
        for record in shapes_records
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "features"


def cached(folder: Path, photos: list[Path], part: CNNEncoder | None = None) -> FeatureCache:
    return feature_cache(folder, part or encoder(), PREPROCESSING, photos, 1, workers=0)


def encoded(folder: Path, photos: list[Path]) -> int:
    """How many photos are encoded until the features are whole."""
    model, seen = encoder(), []
    # An image without a pixel above 0 only tells the shape of the vectors, and one of another size
    # only whether folding the network has changed them.
    model.register_forward_hook(
        lambda module, images, out: seen.append(images[0].shape[-1] == 32 and bool(images[0].any()))
    )
    cached(folder, photos, model)
    return sum(seen)


def interrupted(folder: Path, photos: list[Path]) -> None:
    """Leave unfinished features behind: the fourth photo cannot be read."""
    whole = photos[3].read_bytes()
    photos[3].write_bytes(whole[:300])
    with pytest.raises(InputError, match=photos[3].name):
        cached(folder, photos)
    photos[3].write_bytes(whole)


HALF_A_ROW = """
from captioning.data.unfinished_features import RowWriter
write = RowWriter._write_at
rows = []

def _write_at(self, offset, content):
    rows.append(offset)
    if len(rows) == 4:
        write(self, offset, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, offset, content)

RowWriter._write_at = _write_at
"""

BEFORE_THE_JOURNAL = """
from captioning.data import unfinished_features
rows = []

class DyingWriter(unfinished_features.RowWriter):
    def _write_at(self, offset, content):
        super()._write_at(offset, content)
        rows.append(offset)
        if len(rows) == 4:
            os.kill(os.getpid(), signal.SIGKILL)

unfinished_features.RowWriter = DyingWriter
"""

BEFORE_THE_INDEX = """
from captioning.data import unfinished_features
write_json = unfinished_features.write_json

def dying_write_json(path, value):
    if path.name == "index.json":
        os.kill(os.getpid(), signal.SIGKILL)
    write_json(path, value)

unfinished_features.write_json = dying_write_json
"""


@pytest.mark.parametrize(
    ("death", "left"),
    [(HALF_A_ROW, 3), (BEFORE_THE_JOURNAL, 3), (BEFORE_THE_INDEX, 0)],
    ids=["half a row", "before the journal", "before the index"],
)
def test_a_kill_loses_nothing_that_was_finished(
    photos: list[Path], folder: Path, tmp_path: Path, death: str, left: int
) -> None:
    program = f"""
import os, signal, torch
from pathlib import Path
from captioning.data.extraction import feature_cache
from captioning.data.preprocessing import Preprocessing
from captioning.models import CNNEncoder

torch.set_num_threads(1)  # as in this process: another number adds up in another order
{death}
torch.manual_seed(0)
photos = [Path(photo) for photo in {[str(photo) for photo in photos]}]
encoder = CNNEncoder("small", weights=None)
feature_cache({str(folder)!r}, encoder, Preprocessing(32), photos, 1, workers=0)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert encoded(folder, photos) == left
    cached(tmp_path / "never killed", photos)
    ours, theirs = (np.load(path / ANNOTATIONS) for path in (folder, tmp_path / "never killed"))
    assert np.array_equal(ours, theirs)


def test_whole_features_leave_no_other_files(photos: list[Path], folder: Path) -> None:
    interrupted(folder, photos)
    cached(folder, photos)
    assert {path.name for path in folder.iterdir()} == {ANNOTATIONS, INDEX}


def test_unfinished_features_are_no_features(photos: list[Path], folder: Path) -> None:
    interrupted(folder, photos)
    with pytest.raises(InputError, match=r"index\.json: no such file"):
        FeatureCache(folder)


def test_a_photo_that_was_replaced_meanwhile_is_encoded_again(
    photos: list[Path], folder: Path
) -> None:
    interrupted(folder, photos)
    read_image(photos[1]).resize((20, 20)).save(photos[1])
    assert encoded(folder, photos) == 4
    vectors = encoder().eval()(PREPROCESSING(read_image(photos[1])).pixels[None])[0]
    torch.testing.assert_close(
        FeatureCache(folder)[photos[1]].float(), vectors, rtol=1e-3, atol=1e-4
    )


def test_a_line_of_a_journal_that_was_cut_short_does_not_count(
    photos: list[Path], folder: Path
) -> None:
    interrupted(folder, photos)
    [journal] = folder.glob("finished-*.txt")
    os.truncate(journal, journal.stat().st_size - 1)
    assert encoded(folder, photos) == 4


def test_journals_without_their_vectors_do_not_count(photos: list[Path], folder: Path) -> None:
    interrupted(folder, photos)
    (folder / ANNOTATIONS).unlink()
    assert encoded(folder, photos) == 6


def test_journals_of_features_that_were_removed_do_not_count(
    photos: list[Path], folder: Path
) -> None:
    interrupted(folder, photos)
    (folder / ANNOTATIONS).unlink()
    (folder / UNFINISHED).unlink()
    assert encoded(folder, photos) == 6


def test_unfinished_features_of_another_encoder_are_refused(
    photos: list[Path], folder: Path
) -> None:
    interrupted(folder, photos)
    with pytest.raises(InputError, match="features: holds unfinished features of another encoder"):
        cached(folder, photos, encoder(seed=1))


def test_unfinished_features_of_other_photos_are_refused(photos: list[Path], folder: Path) -> None:
    interrupted(folder, photos)
    with pytest.raises(InputError, match="features: holds unfinished features of other photos"):
        cached(folder, photos[:5])


def test_no_two_writers_mix(photos: list[Path], folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from captioning.data.unfinished_features import locked\n"
        f"with locked(Path({str(folder)!r})): print(flush=True), sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match="features: another process is writing"):
            cached(folder, photos)
        other.kill()
    assert encoded(folder, photos) == 6


def test_an_error_frees_the_folder(folder: Path) -> None:
    with pytest.raises(RuntimeError), locked(folder):
        raise RuntimeError
    with locked(folder):
        pass


def test_features_that_are_larger_than_the_disk_are_refused_at_once(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(InputError, match=r"features: the features need 0\.0 GB"):
        cached(folder, photos)


def test_a_kill_while_the_file_is_made_leaves_no_part_of_it(
    photos: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(file: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            cached(folder, photos)
    assert not (folder / "annotations.npy").exists()
    assert encoded(folder, photos) == 6
