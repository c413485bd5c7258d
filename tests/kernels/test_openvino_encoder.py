"""Encoders that OpenVINO runs; PyTorch's are the oracle."""

import logging
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.captioner import load
from captioning.cli import main
from captioning.errors import InputError
from captioning.kernels import fast_encoder
from captioning.kernels.openvino_encoder import OpenVINOEncoder, cache_folder
from captioning.models import CNNEncoder
from captioning.models.encoder import FrozenStages

pytest.importorskip("openvino", reason="the extra openvino is not installed")

pytestmark = pytest.mark.integration  # each network is converted for seconds


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        patches = np.random.default_rng(number).integers(0, 255, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(patches).resize((60, 40)).save(path)
    return paths


def images(count: int, side: int = 64) -> Tensor:
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)


def encoder(stages: int = 0) -> CNNEncoder:
    torch.manual_seed(1)
    return CNNEncoder("mobilenet_v2", weights=None, trainable_stages=stages).eval()


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("network", [encoder(), FrozenStages(encoder(8))], ids=["all", "stages"])
def test_it_gives_the_same_numbers_for_every_batch_and_size(network: nn.Module) -> None:
    fast = fast_encoder(network, 64, "openvino")
    assert isinstance(fast, OpenVINOEncoder)
    for given in (images(1), images(5), images(300)[::2], images(2, side=96)):
        assert_near(fast(given), network(given))


@torch.no_grad()
def test_it_is_converted_once_and_goes_to_other_processes() -> None:
    network, given = encoder(), images(2)
    first = fast_encoder(network, 64, "openvino")
    [file] = cache_folder().glob("*/encoder.xml")
    written = file.stat().st_mtime_ns
    second = fast_encoder(network, 64, "openvino")
    assert file.stat().st_mtime_ns == written
    assert second(given).equal(first(given))
    assert pickle.loads(pickle.dumps(first))(given).equal(first(given))
    next(network.parameters()).data.mul_(1.1)
    assert_near(fast_encoder(network, 64, "openvino")(given), network(given))
    assert len(list(cache_folder().iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert isinstance(fast_encoder(encoder(), 64, "openvino"), OpenVINOEncoder)


class Unlike(nn.Module):
    """Gives other numbers for other batches, which no fixed graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        return images.float() * self.weight[:, None, None] * (len(images) if len(images) > 2 else 1)


def test_a_network_that_it_cannot_run_is_left_to_pytorch(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="cannot run this encoder: its numbers differ by"):
        fast_encoder(Unlike(), 16, "openvino")
    monkeypatch.setenv("CAPTIONING_ENGINE", "auto")
    with caplog.at_level(logging.INFO):
        assert isinstance(fast_encoder(Unlike(), 16), Unlike)
    assert "so PyTorch does: its numbers differ" in caplog.text


def test_a_captioner_says_the_same_by_either_engine(
    checkpoint: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, fast = load(checkpoint), load(checkpoint, engine="openvino")
    assert isinstance(fast.fast.encoder, OpenVINOEncoder)
    for one, other in zip(plain(photos), fast(photos), strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, rel=1e-3)
    monkeypatch.setenv("CAPTIONING_ENGINE", "auto")
    assert isinstance(load(checkpoint).fast.encoder, OpenVINOEncoder)


def test_the_command_says_which_engine_runs(
    checkpoint: Path, photos: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    caption = ["caption", str(photos[0]), "--model", str(checkpoint)]
    assert main(caption) == 0
    by_torch = capsys.readouterr()
    assert by_torch.err == ""
    assert main([*caption, "--engine", "openvino"]) == 0
    by_openvino = capsys.readouterr()
    assert by_openvino.out == by_torch.out
    assert by_openvino.err.startswith("captioning: OpenVINO 20")


def test_without_the_library_it_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(InputError, match=r"pip install 'captioning\[openvino\]'"):
        fast_encoder(encoder(), 64, "openvino")
    monkeypatch.setenv("CAPTIONING_ENGINE", "auto")
    assert not isinstance(fast_encoder(encoder(), 64), OpenVINOEncoder)
