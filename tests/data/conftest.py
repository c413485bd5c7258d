"""Photos, and the features of a small encoder, for the tests of what is read and kept."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from captioning.data.data_module import CaptionData
from captioning.data.feature_cache import FeatureCache, feature_cache
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.models import CNNEncoder


def write(path: Path, content: Any) -> None:
    """Write text, bytes, or another value as JSON, into a folder that may be missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    is_text = isinstance(text, str)
    path.write_bytes(text.encode("utf-8", "surrogateescape") if is_text else text)


def draw(root: Path, *names: str) -> None:
    """Small photos of these names below the root."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / name)


def coco_captions(*pairs: tuple[int, Any], images: Iterable[int] = ()) -> dict[str, Any]:
    """COCO's file of these captions by the ids of images, here those of the captions by default."""
    ids = images or dict.fromkeys(image for image, _ in pairs)
    return {
        "images": [{"id": image, "file_name": f"{image}.jpg"} for image in ids],
        "annotations": [{"image_id": image, "caption": caption} for image, caption in pairs],
    }


def touch(root: Path, *names: str) -> None:
    """Empty files of these names below the root."""
    for name in names:
        write(root / name, "")


def trained_on(kind: str, data: CaptionData) -> CaptionData:
    """The data in a training of one process on a device of this kind."""
    strategy = SimpleNamespace(root_device=torch.device(kind))
    trainer: Any = SimpleNamespace(strategy=strategy, world_size=1, global_rank=0)
    data.trainer = trainer
    return data


def encoder(seed: int = 0) -> CNNEncoder:
    """A small encoder, whose features lie on a grid of 4 x 4 cells of images of 32 pixels."""
    torch.manual_seed(seed)
    return CNNEncoder("small", weights=None)


def cached(folder: Path, photos: list[Path], part: CNNEncoder | None = None) -> FeatureCache:
    """The features of photos in a folder, by `encoder` or another one."""
    return feature_cache(folder, part or encoder(), Preprocessing(32), images=photos)


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
    """For features; it does not exist yet."""
    return tmp_path / "features"
