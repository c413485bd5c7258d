"""A good file for every loader of files that may come from anybody."""

import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save

from captioning.captioner import Captioner, load
from captioning.captioner.calibration import FEATURES, Calibration
from captioning.data.folder_check import check
from captioning.data.images import read_image
from captioning.data.photo_files import columns_by_split
from captioning.data.readers import reader_for
from captioning.data.references import read_references, read_results
from captioning.data.vocabulary import Vocabulary
from captioning.metrics.cider import DocumentFrequencies
from captioning.models import CNNEncoder
from captioning.models.backbones import SMALL_WEIGHTS
from captioning.search import BeamSearch
from captioning.training.train_cli import TrainCLI, plain_messages
from tests.conftest import image_file
from tests.fixtures import tiny_captioner

CAPTIONS = [{"image_id": number, "caption": f"a dog {number}"} for number in range(3)]
COCO = {"annotations": CAPTIONS, "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(3)]}
KARPATHY = [
    {"imgid": number, "filename": f"{number}.jpg", "split": "train"}
    | {"sentences": [{"tokens": ["a", "dog"], "raw": "a dog"}]}
    for number in range(3)
]


class Loader(NamedTuple):
    """What is read, and how.

    Attributes:
        name: of the file.
        content: a good file.
        read: raises InputError for others.
    """

    name: str
    content: Callable[[], bytes]
    read: Callable[[Path], object]


@cache
def captioner() -> Captioner:
    words, values = ["a", "red", "circle", "square"], dict.fromkeys(FEATURES, 0.1)
    captioner = tiny_captioner(Vocabulary(words, spellings={"red": "Red"}, ranks={"square": 9}))
    photo = [0.1] * (captioner.model.encoder.annotation_dim + 1)
    captioner.search = BeamSearch(max_length=4)  # the words of a test take time
    search = captioner.search.config
    captioner.calibration = Calibration(1.1, values, values, 0.1, photo, (1.0, 0.1, 0.1), search)
    return captioner


def checkpoint(config: Any = None, tensors: Any = None) -> bytes:
    """A model as `captioning train` writes it, with another config or tensors if given."""
    state = (tensors or captioner().model.state_dict()).items()
    return saved(
        {"captioner": config or captioner().config, "optimizer_states": [torch.ones(1000)]}
        | {"epoch": 3, "state_dict": {f"model.{name}": value for name, value in state}}
    )


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def exported(config: Any = None) -> bytes:
    """A model as `captioning export` writes it, with another config if given."""
    tensors = {name: value.contiguous() for name, value in captioner().model.state_dict().items()}
    return save(tensors, {"captioner": json.dumps(config or captioner().config)})


def picture(format: str = "PNG") -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    return image_file(Image.fromarray(noise), format)


def parquet() -> bytes:
    datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    images = [{"bytes": picture(), "path": f"{number}.png"} for number in range(3)]
    file = io.BytesIO()
    datasets.Dataset.from_dict({"image": images, "caption": ["a", "b", "c"]}).to_parquet(file)
    return file.getvalue()


def frequencies() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.npz")
        DocumentFrequencies.of([[("a", "dog")], [("a", "cat")]]).save(path)
        return path.read_bytes()


def text(content: object) -> Callable[[], bytes]:
    return lambda: (content if isinstance(content, str) else json.dumps(content)).encode()


def data_set(path: Path) -> None:
    """All splits of a data set, as training and `check` read them."""
    columns_by_split.cache_clear()  # of this path's earlier content
    reader = reader_for(path if path.suffix in (".csv", ".jsonl", ".json") else path.parent)
    data_set = reader.read()
    for split in data_set.splits:
        data_set.records(split)
    check(reader, progress=False)


def training(path: Path) -> None:
    """The parts of a training by a configuration."""
    with plain_messages():
        TrainCLI(["--config", "tiny.yaml", "--config", str(path)])


LOADERS: dict[str, Loader] = {
    "a table": Loader("captions.csv", text("image,caption\n" + "0.jpg,a dog\n" * 3), data_set),
    "lines of JSON": Loader(
        "captions.jsonl", text('{"image": "0.jpg", "caption": "a"}\n' * 3), data_set
    ),
    "Karpathy's JSON": Loader("dataset_coco.json", text({"images": KARPATHY}), data_set),
    "Parquet": Loader("train-00000.parquet", parquet, data_set),
    "results": Loader("results.json", text(CAPTIONS), read_results),
    "references": Loader("references.json", text(COCO), read_references),
    "frequencies": Loader("corpus.npz", frequencies, DocumentFrequencies.load),
    **{
        format: Loader(f"photo.{format.lower()}", lambda f=format: picture(f), read_image)  # type: ignore[misc]
        for format in ("JPEG", "PNG", "WebP", "GIF", "TIFF")
    },
    "a checkpoint": Loader("model.ckpt", checkpoint, load),
    "an exported model": Loader("model.safetensors", exported, load),
    "weights": Loader(
        "small.pth", SMALL_WEIGHTS.read_bytes, lambda path: CNNEncoder("small", weights=str(path))
    ),
    "a configuration": Loader(
        "delta.yaml", text(yaml.safe_dump({"model": {"learning_rate": 0.1}})), training
    ),
}
