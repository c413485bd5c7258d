import hashlib
import json
import shutil
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from captioning.captioner import load
from captioning.commands import main
from captioning.errors import InputError
from captioning.search import Sampling
from captioning.web import site
from captioning.web.site import (
    GRAPHS,
    PACKAGE,
    PACKAGE_SHA512,
    RUNTIME,
    VERSION,
    rounded,
    runtime_files,
    write_site,
    zipped,
)
from tests.conftest import Served, unchecked

pytest.importorskip("onnx", reason="onnx is not installed")

MEGABYTES = 20


@pytest.fixture(autouse=True)
def untyped() -> Iterator[None]:
    with unchecked():
        yield


def graph_of(weight: np.ndarray, path: Path) -> Path:
    """A graph that multiplies by one matrix."""
    from onnx import numpy_helper, parser, save

    head = '<ir_version: 8, opset_import: ["" : 17]> product (float[B, C] x) => (float[B, D] y)'
    model = parser.parse_model(head + " { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    save(model, str(path))
    return path


@pytest.mark.parametrize("most", [100, 4095])
def test_weights_are_rounded_to_numbers_of_few_bits(most: int, tmp_path: Path) -> None:
    from onnxruntime import InferenceSession

    weight = np.random.default_rng(0).normal(size=(100, 300)).astype(np.float32)
    weight[7] = 0.0
    graph = rounded(graph_of(weight, tmp_path / "graph.onnx"), most)
    [found] = InferenceSession(graph).run(None, {"x": np.eye(100, dtype=np.float32)})
    difference = np.abs(found - weight)
    assert (difference <= np.abs(weight).max(axis=1, keepdims=True) / (2 * most - 1)).all()
    assert difference.max() > 0
    content, least = zipped(graph), weight.size * np.log2(most) / 8  # bytes
    assert least < len(content) < least + weight.size / 8 + 1500
    planes = np.frombuffer(zlib.decompress(content), np.uint8)
    half = len(graph) - len(graph) // 2
    whole = np.empty_like(planes)
    whole[::2], whole[1::2] = planes[:half], planes[half:]
    assert whole.tobytes() == graph


def test_the_command_writes_all_that_the_page_asks_for(
    tmp_path: Path, small_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "site"
    assert main(["export", "shapes", str(folder), "--web", "--runtime", str(small_package)]) == 0
    assert capsys.readouterr().out == f"{folder}\npython -m http.server -b 127.0.0.1 -d {folder}\n"
    graphs = {f"{graph}.packed" for graph in GRAPHS}
    programs = {"index.html", "worker.js", "captions.js", "pixels.js", "captioner.json"}
    names = {path.name for path in folder.iterdir()}
    assert names == programs | graphs | {"onnxruntime.js", "onnxruntime.wasm", "licences.txt"}
    about = json.loads((folder / "captioner.json").read_text(encoding="utf-8"))
    assert about["bytes"] == sum((folder / graph).stat().st_size for graph in graphs)
    assert about["calibration"] is None
    assert "script-src 'self' 'wasm-unsafe-eval' 'sha256-" in (folder / "index.html").read_text()


def test_another_search_becomes_beam_search_with_its_limits(
    tmp_path: Path, small_package: Path
) -> None:
    captioner = load("shapes")
    captioner.search = Sampling(max_length=7, no_repeat_ngram=2)
    write_site(captioner, tmp_path, "<shapes>", small_package)
    search = json.loads((tmp_path / "captioner.json").read_text())["search"]
    assert search["class"] == "BeamSearch"
    assert (search["max_length"], search["no_repeat_ngram"]) == (7, 2)
    assert "<b>&lt;shapes&gt;</b>" in (tmp_path / "index.html").read_text()


@pytest.mark.integration
def test_the_photo_models_files_fit_a_page(tmp_path: Path, small_package: Path) -> None:
    write_site(load(), tmp_path / "site", "photos", small_package)
    assert sum(path.stat().st_size for path in (tmp_path / "site").iterdir()) < MEGABYTES * 10**6


def checksum(path: Path) -> str:
    return b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


@pytest.fixture
def registry(
    tmp_path: Path, small_package: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The package's file in a registry on loopback, from which it is downloaded."""
    folder = tmp_path / "registry" / PACKAGE / "-"
    folder.mkdir(parents=True)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", served(tmp_path / "registry"))
    return Path(shutil.copy(small_package, folder / f"{PACKAGE}-{VERSION}.tgz"))


def test_a_package_is_read_or_downloaded(
    registry: Path, small_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PACKAGE_SHA512", checksum(registry))
    assert (
        runtime_files()
        == runtime_files(small_package)
        == {name: member.encode() for name, member in RUNTIME.items()}
    )


def test_a_package_with_another_checksum_is_refused(registry: Path) -> None:
    with pytest.raises(InputError, match="another file than npm published; run npm pack"):
        runtime_files()


@pytest.mark.parametrize("content", [b"", b"text" * 1000, None])
def test_other_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "file.tgz").write_bytes(content)
    with pytest.raises(InputError, match=r"file.tgz: (not onnxruntime-web|no such file)"):
        runtime_files(tmp_path / "file.tgz")


@pytest.mark.integration
def test_the_checksum_is_that_of_the_package_that_npm_gives(package: Path) -> None:
    assert checksum(package) == PACKAGE_SHA512
    assert all(len(content) > 10_000 for content in runtime_files(package).values())
