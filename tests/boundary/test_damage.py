"""Every loader, on damaged and odd files: a result or one line, soon and in little memory."""

import io
import json
import math
import resource
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captioning.captioner import Captioner, load
from captioning.captioner.calibration import FEATURES
from captioning.configurable import full_name
from captioning.data.folder_check import check
from captioning.data.readers import reader_for
from captioning.errors import InputError
from captioning.models import CNNEncoder
from tests.boundary.loaders import LOADERS, captioner, checkpoint, exported, saved
from tests.conftest import draw_photos, unchecked

SNIPPETS = [b"", b"\0", b"\xff" * 4, b'"', b"null", b"-1", b"1e999", b"[" * 2000, b"\n", b","]

damages = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 40), st.sampled_from(SNIPPETS) | st.binary(max_size=4)
    ),
    min_size=1,
    max_size=3,
)
"""Pieces of a file, by their place and length, that something else stands for."""

PHOTO = torch.arange(3 * 40 * 40).reshape(3, 40, 40).to(torch.uint8)


def some(count: int) -> Any:
    options: dict[str, Any] = {"deadline": None, "database": None, "derandomize": True}
    return settings(max_examples=count, suppress_health_check=list(HealthCheck), **options)


def damaged(content: bytes, pieces: list[tuple[float, int, bytes]]) -> bytes:
    for place, length, snippet in pieces:
        at = int(place * len(content))
        content = content[:at] + snippet + content[at + length :]
    return content


def result(read: Callable[[Path], object], path: Path) -> object:
    """What is read from a file; None after an error of one line."""
    try:
        return read(path)
    except InputError:  # which has one line
        return None


COUNTS = [6, pytest.param(60, marks=pytest.mark.integration)]
"""How many damages of a file are tried: a few, and before a release more."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", LOADERS)
def test_a_damaged_file_gives_a_result_or_one_line(kind: str, count: int, folder: Path) -> None:
    loader = LOADERS[kind]
    path, whole = folder / loader.name, loader.content()
    draw_photos(folder, "0.jpg", "1.jpg", "2.jpg")
    path.write_bytes(whole)
    loader.read(path)
    # Of a model without checksums, only where names, sizes and the config are.
    head = 4000 if kind == "an exported model" else len(whole)

    @some(count)
    @given(damages)
    def try_it(pieces: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(damaged(whole[:head], pieces) + whole[head:])
        result(loader.read, path)

    try_it()
    assert not Path("marker").exists()


def said(path: Path) -> Any:
    caption = load(path)(PHOTO)
    return caption.words, caption.score, caption.probabilities


@pytest.mark.parametrize("count", COUNTS)
def test_a_damaged_checkpoint_never_captions_otherwise(count: int, tmp_path: Path) -> None:
    path, whole = tmp_path / "model.ckpt", checkpoint()
    path.write_bytes(whole)
    expected = said(path)

    @some(count)
    @given(damages)
    def try_it(pieces: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(damaged(whole, pieces))
        assert result(said, path) in (None, expected)

    try_it()


VALUES: list[Any] = [None, -1, {"a": 5}]
MORE_VALUES: list[Any] = ["os.system", True, 0, 1.5, math.nan, 10**20, {}, [1.0]]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of a config."""
    if isinstance(value, dict):
        return [at, *(path for key, part in value.items() for path in places(part, (*at, key)))]
    return [at]


def changed(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A model's config with another value in one place."""
    config: dict[str, Any] = json.loads(json.dumps(captioner().config))
    part = config
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return config


def odd_places() -> Iterator[Any]:
    """All places of a model's config; one feature of the calibration stands for its others."""
    for place in filter(None, places(captioner().config)):
        is_repeated = place[-1] in FEATURES[1:]
        marks = [pytest.mark.integration] if is_repeated else []
        yield pytest.param(place, marks=marks, id=".".join(place))


@pytest.mark.parametrize("place", [*odd_places()])
@pytest.mark.parametrize(
    "values", [VALUES, pytest.param(MORE_VALUES, marks=pytest.mark.integration)], ids=["", "more"]
)
def test_a_model_with_an_odd_setting_captions_or_is_refused_when_loaded(
    place: tuple[str, ...], values: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    for value in values:
        path.write_bytes(exported(changed(place, value)))
        with unchecked():
            captioner: Any = result(load, path)
            assert captioner is None or isinstance(captioner(PHOTO).text, str)


def test_a_spelling_is_text(tmp_path: Path) -> None:
    path, words = tmp_path / "model.safetensors", ["5", "red", "circle", "square"]
    odd = {"vocabulary": words, "spellings": {"5": 5}, "ranks": {}}
    path.write_bytes(exported(captioner().config | odd))
    with unchecked(), pytest.raises(InputError, match="5 is not a spelling of '5'"):
        load(path)


def nested() -> Any:
    """A list with a billion parts, whose pickle has some hundred bytes."""
    value: Any = ["x"]
    for _ in range(30):
        value = [value, value]
    return value


@pytest.mark.parametrize("place", [("unknown",), ("spellings",), ("search", "width")])
def test_a_config_that_is_huge_if_written_out_is_refused_soon(
    place: tuple[str, ...], tmp_path: Path
) -> None:
    path, began = tmp_path / "model.ckpt", time.process_time()
    path.write_bytes(checkpoint(changed(place, {"a": nested()})))
    with pytest.raises(InputError, match="damaged"):
        load(path)
    assert time.process_time() - began < 2


def test_archived_files_that_overlap_are_refused_soon(tmp_path: Path) -> None:
    """A thousand names for one file of 40 MB would take a minute to check."""
    path = tmp_path / "model.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data", bytes(40_000_000))
        archive.filelist *= 1000
    began = time.process_time()
    with pytest.raises(InputError, match="damaged"):
        load(path)
    assert time.process_time() - began < 2


def test_tensors_share_numbers_only_where_the_model_ties_them(tmp_path: Path) -> None:
    """A file of 4 MB would else take 700 MB."""
    config = changed(("model", "adapter", "projection_dim"), 512)
    config["model"]["adapter"] |= {"region_layers": 60, "region_heads": 8}
    config["model"]["decoder"]["annotation_dim"] = 512
    wanted = Captioner.from_config(config, False, "meta").model.state_dict()
    numbers = torch.zeros(max(value.numel() for value in wanted.values()))
    shared = {
        name: numbers[: like.numel()].view(like.shape).to(like.dtype)
        for name, like in wanted.items()
    }
    path = tmp_path / "model.ckpt"
    path.write_bytes(checkpoint(config, shared))
    assert path.stat().st_size < 5e6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="shares its numbers with another tensor"):
        load(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 1e8


@pytest.mark.parametrize(
    "part", ["model", "vocabulary", "search", "model.encoder", "model.decoder"]
)
def test_a_missing_part_of_a_model_is_named(part: str, tmp_path: Path) -> None:
    config = changed(tuple(part.split(".")), None)
    del (config["model"] if "." in part else config)[part.rpartition(".")[2]]
    path = tmp_path / "model.safetensors"
    path.write_bytes(exported(config))
    with pytest.raises(InputError, match=f"the model's {part.rpartition('.')[2]} is missing"):
        load(path)


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "another shape": lambda tensor: torch.zeros(3, 5, 7),
    "nan": lambda tensor: tensor.double() * float("nan"),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "sparse": lambda tensor: (tensor + 1).to_sparse(),
    "no numbers": lambda tensor: tensor.to("meta"),
    "repeated": lambda tensor: torch.zeros(()).expand(tensor.shape),
}


@pytest.mark.parametrize("change", TENSORS)
def test_a_changed_tensor_is_refused(change: str, tmp_path: Path) -> None:
    content = torch.load(io.BytesIO(checkpoint()), weights_only=True)
    path, tensors = tmp_path / "model.ckpt", content["state_dict"]
    for name in list(tensors)[:: len(tensors) // 4]:
        changed = tensors | {name: TENSORS[change](tensors[name])}
        path.write_bytes(saved(content | {"state_dict": changed}))
        with pytest.raises(InputError, match=r"model\.ckpt: "):
            load(path)


@pytest.mark.parametrize("name", ["output.bias", "third"])
def test_a_missing_or_unknown_tensor_is_named(name: str, tmp_path: Path) -> None:
    content = torch.load(io.BytesIO(checkpoint()), weights_only=True)
    if content["state_dict"].pop(f"model.decoder.{name}", None) is None:
        content["state_dict"][f"model.decoder.{name}"] = torch.ones(1)
    path = tmp_path / "model.ckpt"
    path.write_bytes(saved(content))
    with pytest.raises(InputError, match=rf"decoder\.{name}"):
        load(path)


@pytest.mark.parametrize("width", [4_000, 40_000])
def test_sizes_are_compared_before_memory_is_taken(width: int, tmp_path: Path) -> None:
    config = changed(("model", "decoder", "hidden_dim"), width)
    config["model"]["decoder"]["embedding_dim"] = width  # 40,000: 20 billion parameters
    path = tmp_path / "model.safetensors"
    path.write_bytes(exported(config))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(InputError, match=r"shape|parameters"):
        load(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 3e9
    assert time.process_time() - began < 2


def test_the_class_of_a_part_is_checked_before_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of another kind, or weights that it names, would be downloaded."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    encoder = {"class": full_name(CNNEncoder), "backbone": "resnet18", "weights": "DEFAULT"}
    path = tmp_path / "model.safetensors"
    for place in (("search",), ("preprocessing",), ("model", "decoder"), ("model", "adapter")):
        path.write_bytes(exported(changed(place, encoder)))
        with pytest.raises(InputError, match="CNNEncoder is not a subclass"):
            load(path)
    without = {name: value for name, value in encoder.items() if name != "weights"}
    for odd in (encoder, without, encoder | {"backbone": "timm/hf-hub:someone/else"}):
        path.write_bytes(exported(changed(("model", "encoder"), odd)))
        with pytest.raises(InputError):
            load(path)
    assert not asked


def test_photos_outside_the_folder_are_named_by_check(tmp_path: Path) -> None:
    draw_photos(tmp_path, "elsewhere.png", "mine/a.png")
    folder = tmp_path / "mine"
    (folder / "captions.csv").write_text("image,caption\n../elsewhere.png,a bird\na.png,a dog\n")
    shown = check(reader_for(folder), progress=False)
    assert shown.ok
    assert f"1 outside the data set's folder, such as {folder}/../elsewhere.png" in str(shown)
