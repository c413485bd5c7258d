"""Every loader, on damaged and hostile files: a result or one line, and nothing is executed."""

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from captioning.captioner import Captioner, load
from captioning.data.folder_check import check
from captioning.data.images import read_image
from captioning.data.readers import reader_for
from captioning.data.references import read_references, read_results
from captioning.errors import InputError
from captioning.metrics.cider import DocumentFrequencies
from captioning.models import CNNEncoder
from tests.conftest import checkpoint_of, draw_photos

Write = Callable[[Path], object]

CAPTIONS = [{"image_id": number, "caption": f"a dog {number}"} for number in range(3)]
KARPATHY = [
    {
        "imgid": number,
        "filename": f"{number}.jpg",
        "split": "train",
        "sentences": [{"tokens": ["a", "dog"], "raw": "a dog"}],
    }
    for number in range(3)
]


def picture(format: str) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, format)
    return file.getvalue()


def as_parquet(path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    images = [{"bytes": picture("PNG"), "path": f"{number}.png"} for number in range(3)]
    parquet.write_table(arrow.table({"image": images, "caption": ["a", "b", "c"]}), path)


def as_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for number in range(3):
            for suffix, content in (("png", picture("PNG")), ("txt", b"a dog")):
                entry = tarfile.TarInfo(f"{number:05d}.{suffix}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def frequencies(path: Path) -> None:
    DocumentFrequencies.of([[("a", "dog")], [("a", "cat")]]).save(path)


def text(content: object) -> Write:
    lines = content if isinstance(content, str) else json.dumps(content)
    return lambda path: path.write_text(lines)


def bytes_of(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def contents(path: Path) -> None:
    """All splits of a data set, as training and `check` read them."""
    reader = reader_for(path if path.suffix in (".csv", ".jsonl", ".json") else path.parent)
    for split in reader.splits:
        reader.read(split)
    check(reader, progress=False)


LOADERS: dict[str, tuple[str, Write, Callable[[Path], object]]] = {
    "a table": ("captions.csv", text("image,caption\n" + "a.jpg,a dog\n" * 3), contents),
    "lines of JSON": ("captions.jsonl", text('{"image": "a.jpg", "caption": "a"}\n' * 3), contents),
    "Karpathy's JSON": ("dataset_coco.json", text({"images": KARPATHY}), contents),
    "Parquet": ("train-00000.parquet", as_parquet, contents),
    "a tar file": ("00000.tar", as_tar, contents),
    "results": ("results.json", text(CAPTIONS), read_results),
    "references": ("references.json", text({"annotations": CAPTIONS}), read_references),
    "frequencies": ("corpus.npz", frequencies, DocumentFrequencies.load),
    "JPEG": ("photo.jpg", bytes_of(picture("JPEG")), read_image),
    "PNG": ("photo.png", bytes_of(picture("PNG")), read_image),
    "WebP": ("photo.webp", bytes_of(picture("WEBP")), read_image),
    "GIF": ("photo.gif", bytes_of(picture("GIF")), read_image),
    "TIFF": ("photo.tiff", bytes_of(picture("TIFF")), read_image),
}

SNIPPETS = [
    b"",
    b"\0",
    b"\xff" * 4,
    b'"',
    b"null",
    b"-1",
    b"1e999",
    b"[" * 2000,
    b"\n",
    b",",
    b"../",
]

damages = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 40), st.sampled_from(SNIPPETS) | st.binary(max_size=4)
    ),
    min_size=1,
    max_size=3,
)
"""Pieces of a file, by their place and length, that something else stands for."""


def some(count: int) -> Any:
    health = list(HealthCheck)
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=health,
    )


def damaged(content: bytes, pieces: list[tuple[float, int, bytes]]) -> bytes:
    for place, length, snippet in pieces:
        at = int(place * len(content))
        content = content[:at] + snippet + content[at + length :]
    return content


def check_loader(read: Callable[[Path], object], path: Path) -> None:
    """Read a file, with a result or an error of one line."""
    try:
        read(path)
    except InputError as refused:
        line = str(refused)
        assert "\n" not in line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LOADERS)
def test_a_damaged_file_gives_a_result_or_one_line(kind: str, tmp_path: Path) -> None:
    name, write, read = LOADERS[kind]
    path = tmp_path / name
    draw_photos(tmp_path, "a.jpg", "0.jpg", "1.jpg", "2.jpg")
    write(path)
    read(path)
    whole = path.read_bytes()

    @some(60)
    @given(damages)
    def try_it(pieces: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(damaged(whole, pieces))
        check_loader(read, path)

    try_it()


def export(captioner: Captioner, path: Path, config: dict[str, Any]) -> None:
    """A model as `captioning export` writes it, with a config of any kind."""
    tensors = {name: value.contiguous() for name, value in captioner.model.state_dict().items()}
    save_file(tensors, path, {"captioner": json.dumps(config)})


@pytest.fixture
def models(captioner: Captioner, tmp_path: Path) -> dict[str, Path]:
    """A model as `train` writes it, and as `export` does."""
    exported = tmp_path / "model.safetensors"
    export(captioner, exported, captioner.config)
    return {
        "checkpoint": checkpoint_of(captioner, tmp_path / "model.ckpt"),
        "exported": exported,
    }


@pytest.mark.parametrize("kind", ["checkpoint", "exported"])
def test_a_damaged_model_gives_captions_or_one_line(kind: str, models: dict[str, Path]) -> None:
    path = models[kind]
    whole = path.read_bytes()
    head = len(whole) if kind == "checkpoint" else 4000  # where names, sizes and the config are

    @some(25)
    @given(damages)
    def try_it(pieces: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(damaged(whole[:head], pieces) + whole[head:])
        check_loader(load, path)

    try_it()


VALUES: list[Any] = [None, "x", True, -1, 0, 1.5, float("nan"), 10**20, [], {}, "os.system"]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of a config."""
    if isinstance(value, dict):
        return [at, *(path for key, part in value.items() for path in places(part, (*at, key)))]
    return [at]


def test_a_changed_config_gives_captions_or_one_line(captioner: Captioner, tmp_path: Path) -> None:
    path, photo = tmp_path / "model.safetensors", torch.zeros(3, 40, 40, dtype=torch.uint8)
    everywhere = [place for place in places(captioner.config) if place]

    @some(40)
    @given(st.sampled_from(everywhere), st.sampled_from(VALUES))
    def try_it(place: tuple[str, ...], value: Any) -> None:
        config = json.loads(json.dumps(captioner.config))
        *parents, last = place
        part = config
        for key in parents:
            part = part[key]
        part[last] = value
        export(captioner, path, config)
        check_loader(lambda path: load(path)(photo), path)

    try_it()


class Touch:
    """Pickled, it makes a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("marker"),)


def packed(path: Path, whole: Path) -> None:
    """The archive with another pickle."""
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            is_pickle = entry.filename.endswith("data.pkl")
            new.writestr(entry.filename, pickle.dumps(Touch()) if is_pickle else old.read(entry))


def weights(path: Path) -> None:
    CNNEncoder("small", weights=str(path))


PICKLES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a model": ("model.ckpt", load),
    "weights of a backbone": ("small.pth", weights),
    "document frequencies": ("corpus.npz", DocumentFrequencies.load),
    "a photo": ("photo.jpg", read_image),
    "results": ("results.json", read_results),
}


@pytest.mark.parametrize("kind", PICKLES)
@pytest.mark.parametrize("how", ["alone", "in an archive", "as an array"])
def test_a_pickle_is_not_executed(
    kind: str, how: str, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, read = PICKLES[kind]
    path = tmp_path / "hostile" / name
    path.parent.mkdir()
    if how == "alone":
        path.write_bytes(pickle.dumps(Touch()))
    elif how == "in an archive":
        packed(path, models["checkpoint"])
    else:
        with path.open("wb") as file:
            np.savez(file, words=np.array([Touch()], dtype=object))
    with pytest.raises(InputError):
        read(path)
    assert not Path("marker").exists()


@pytest.mark.parametrize("name", ["os.system", "hostile.Class", "captioning.files.write_json"])
def test_a_class_of_a_model_is_not_imported(
    name: str, captioner: Captioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("hostile.py").write_text("open('marker', 'w').close()")
    for part in ("search", "preprocessing", "model"):
        config = json.loads(json.dumps(captioner.config))
        at = config[part]["decoder"] if part == "model" else config[part]
        at["class"] = name
        path = tmp_path / "model.safetensors"
        export(captioner, path, config)
        with pytest.raises(InputError):
            load(path)
    assert not Path("marker").exists()
