"""Annotation vectors on disk: a frozen encoder sees each image once, not once per epoch."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from captioning.data.images import read_image
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.files import read_json, write_json, written_whole

ANNOTATIONS = "annotations.npy"
INDEX = "index.json"
REMEDY = "remove it or give another place for the features"


class FeatureCache:
    """Half-precision annotation vectors (L, D) by image, memory-mapped from a folder.

    Args:
        folder: where `feature_cache` wrote them.

    Raises:
        InputError: the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = read_json(self.folder / INDEX)
        try:
            self.fingerprint: str = index["fingerprint"]
            self._sizes: dict[str, int] = dict(index["images"])
            self._annotations = np.load(self.folder / ANNOTATIONS, mmap_mode="r")
            whole = len(self._annotations) == len(self._sizes)
        except (KeyError, TypeError, ValueError, OSError, EOFError):
            whole = False
        if not whole:
            raise InputError(f"{self.folder}: holds no features, or not all of them; {REMEDY}")
        self._rows = {image: row for row, image in enumerate(self._sizes)}

    def __contains__(self, image: Path) -> bool:
        return str(image) in self._rows

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        """The annotation vectors of an image."""
        return torch.from_numpy(self._annotations[self._rows[str(image)]].copy())

    def is_stale(self, image: Path) -> bool:
        """Whether the photo is no longer the one that was encoded, by its size in bytes.

        Photos that are gone do no harm.
        """
        return image.exists() and image.stat().st_size != self._sizes[str(image)]


def feature_cache(
    folder: str | Path,
    encoder: nn.Module,
    preprocessing: Preprocessing,
    images: Sequence[Path],
    batch_size: int = 32,
    workers: int = 1,
) -> FeatureCache:
    """The annotation vectors of `images` under `folder`, computed where they are not there yet.

    Args:
        folder: where they are, or will be written.
        encoder: uint8 images (B, 3, S, S) -> annotation vectors (B, L, D); must be frozen.
        preprocessing: how a photo becomes an image.
        images: paths of the photos.
        batch_size: images encoded at a time.
        workers: processes that read photos.

    Raises:
        InputError: the folder holds the vectors of another encoder, other weights, another
            preprocessing or other images, or is no such folder; or a photo cannot be read.
    """
    folder, images = Path(folder), list(dict.fromkeys(images))
    fingerprint = _fingerprint(encoder, preprocessing)
    if (folder / INDEX).exists():
        cache = FeatureCache(folder)
        if cache.fingerprint != fingerprint:
            raise InputError(
                f"{folder}: made by another encoder, other weights or another image size; {REMEDY}"
            )
        missing = [image for image in images if image not in cache]
        if missing:
            raise InputError(
                f"{folder}: has no features of {missing[0]} and {len(missing) - 1} more; {REMEDY}"
            )
        stale = [image for image in images if cache.is_stale(image)]
        if stale:
            raise InputError(
                f"{folder}: {stale[0]} and {len(stale) - 1} more have changed since; {REMEDY}"
            )
        return cache
    with written_whole(folder / ANNOTATIONS) as path:
        _write(path, encoder, preprocessing, images, batch_size, workers)
    sizes = {str(image): image.stat().st_size for image in images}
    write_json(folder / INDEX, {"fingerprint": fingerprint, "images": sizes})
    return FeatureCache(folder)


class _Photos(Dataset[Tensor]):
    def __init__(self, images: Sequence[Path], preprocessing: Preprocessing) -> None:
        self.images = images
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.preprocessing(read_image(self.images[index])).pixels


@torch.inference_mode()
def _write(
    path: Path,
    encoder: nn.Module,
    preprocessing: Preprocessing,
    images: Sequence[Path],
    batch_size: int,
    workers: int,
) -> None:
    device = next(encoder.parameters()).device
    loader = DataLoader(_Photos(images, preprocessing), batch_size, num_workers=workers)
    encoder.eval()
    rows: Any = None
    done = 0
    with tqdm(total=len(images), desc="features", unit="image", disable=None) as progress:
        for pixels in loader:
            annotations = encoder(pixels.to(device)).half().cpu().numpy()
            if rows is None:
                shape = (len(images), *annotations.shape[1:])
                rows = np.lib.format.open_memmap(path, "w+", np.float16, shape)
            rows[done : done + len(annotations)] = annotations
            done += len(annotations)
            progress.update(len(annotations))
    rows.flush()


def _fingerprint(encoder: nn.Module, preprocessing: Preprocessing) -> str:
    """Changes with the encoder's architecture and parameters and with the preprocessing."""
    config: Any = encoder.config
    digest = hashlib.sha256()
    digest.update(repr(sorted((config | {"weights": None}).items())).encode())
    digest.update(repr(sorted(preprocessing.config.items())).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
