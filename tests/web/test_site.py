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
    RUNTIME,
    SHA512,
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
    from onnx import TensorProto, helper, numpy_helper, save

    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", weight.shape[0]])
    outputs = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", weight.shape[1]])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    tensors = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(nodes, "product", [inputs], [outputs], tensors)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


def weight_in(graph: bytes, rows: int) -> np.ndarray:
    from onnxruntime import InferenceSession

    [found] = InferenceSession(graph).run(None, {"x": np.eye(rows, dtype=np.float32)})
    return np.asarray(found)


@pytest.mark.parametrize("most", [100, 4095])
def test_weights_are_rounded_to_numbers_of_few_bits(most: int, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(100, 300)).astype(np.float32)
    weight[7] = 0.0
    graph = rounded(graph_of(weight, tmp_path / "graph.onnx"), most)
    difference = np.abs(weight_in(graph, 100) - weight)
    assert (difference <= np.abs(weight).max(axis=1, keepdims=True) / (2 * most - 1)).all()
    assert difference.max() > 0
    content = zipped(graph)
    assert (
        weight.size * np.log2(most) / 8 < len(content) < weight.size * np.log2(2 * most) / 8 + 1500
    )
    planes = np.frombuffer(zlib.decompress(content), np.uint8)
    half = len(graph) - len(graph) // 2
    whole = np.empty_like(planes)
    whole[::2], whole[1::2] = planes[:half], planes[half:]
    assert whole.tobytes() == graph


def test_the_folder_has_all_that_the_page_asks_for(tmp_path: Path, small_package: Path) -> None:
    folder = tmp_path / "site"
    write_site(load("shapes"), folder, "<shapes>", small_package)
    names = {path.name for path in folder.iterdir()}
    programs = {"index.html", "worker.js", "captions.js", "pixels.js", "captioner.json"}
    graphs = {f"{graph}.packed" for graph in GRAPHS}
    assert names == programs | graphs | {"onnxruntime.js", "onnxruntime.wasm", "licences.txt"}
    about = json.loads((folder / "captioner.json").read_text(encoding="utf-8"))
    assert about["bytes"] == sum((folder / graph).stat().st_size for graph in graphs)
    assert about["calibration"] is None
    page = (folder / "index.html").read_text()
    assert "<b>&lt;shapes&gt;</b>" in page
    assert "script-src 'self' 'wasm-unsafe-eval' 'sha256-" in page


def test_another_search_becomes_beam_search_with_its_limits(
    tmp_path: Path, small_package: Path
) -> None:
    captioner = load("shapes")
    captioner.search = Sampling(max_length=7, no_repeat_ngram=2)
    write_site(captioner, tmp_path / "site", "shapes", small_package)
    search = json.loads((tmp_path / "site" / "captioner.json").read_text())["search"]
    assert search["class"] == "BeamSearch"
    assert (search["max_length"], search["no_repeat_ngram"]) == (7, 2)


def test_the_command_writes_the_page_and_says_how_to_see_it(
    tmp_path: Path, small_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "site")
    assert main(["export", "shapes", folder, "--web", "--runtime", str(small_package)]) == 0
    assert capsys.readouterr().out == f"{folder}\npython -m http.server -b 127.0.0.1 -d {folder}\n"


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
    monkeypatch.setattr(site, "SHA512", checksum(registry))
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
    assert checksum(package) == SHA512
    assert all(len(content) > 10_000 for content in runtime_files(package).values())
