"""Features on disk: the frozen stages of an encoder run once per image, not once per epoch.

Shapes: L regions and D annotation width; if later stages are trained, L cells and D channels of the
last frozen stage.

A folder of features holds

    index.json            the encoder's fingerprint, the photos' hashes, and the rows of a shard
    features-00000.npy    a shard: the features of the first photos, float16 (rows, L, D)
    features-00001.npy    ...

The index is written first. Shards are written atomically, so a shard whose file exists is done.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor

from captioning.configurable import bare_name
from captioning.data.photo_shards import photo_hash
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError, reading
from captioning.files import made_folder, write_json, written_whole
from captioning.untrusted import read_json

INDEX = "index.json"
REMEDY = "remove it or give another place for the features"

MOST_SHARDS = 256  # all stay open, and a process may open about 1,000 files
FEWEST_ROWS = 64  # of a shard, which a killed process loses


@runtime_checkable
class ConstantEncoder(Protocol):
    """The `constant` part of an encoder, which computes features: a module with a config."""

    @property
    def config(self) -> dict[str, Any]:
        """The settings that decide its output, apart from its parameters."""

    def __call__(self, images: Tensor) -> Tensor:
        """Features (B, L, D) of uint8 images (B, 3, S, S)."""

    def state_dict(self) -> dict[str, Tensor]:
        """Its parameters and buffers."""

    def parameters(self) -> Iterator[Tensor]:
        """Its parameters."""


class FeatureCache:
    """Half-precision features (L, D) by image, memory-mapped from a folder.

    `images` are the paths of the photos, in the order of the rows.

    Args:
        folder: where `captioning.data.extraction.feature_cache` wrote them.

    Raises:
        InputError: the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = read_json(self.folder / INDEX)
        try:
            self.fingerprint: str = index["fingerprint"]
            self._shard_rows = int(index["rows"])
            hashes: dict[str, str] = dict(index["images"])
            "".join(hashes.values())  # earlier versions kept sizes
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{self.folder}: holds no features, or those of an earlier version; {REMEDY}"
            ) from None
        # The index holds paths relative to the folder, so they are valid in any working directory.
        root = _place(self.folder)
        self.images = [Path(os.path.normpath(f"{root}/{image}")) for image in hashes]
        self._rows = {str(image): row for row, image in enumerate(self.images)}
        self._hashes = list(hashes.values())
        count = math.ceil(len(self.images) / self._shard_rows)
        self._paths = [self.folder / f"features-{shard:05d}.npy" for shard in range(count)]

    @classmethod
    def begin(cls, folder: Path, fingerprint: str, images: Sequence[Path]) -> "FeatureCache":
        """Write the index of a folder that is new or empty.

        Raises:
            InputError: the folder holds something else or cannot be written to, or a photo is
                missing.
        """
        made_folder(folder)
        if any(not file.name.startswith(".") for file in folder.iterdir()):
            raise InputError(f"{folder}: holds something other than features; {REMEDY}")
        root, hashes = _place(folder), {}
        for image, digest in zip(images, _hashes_of(images), strict=True):
            if digest is None:
                raise InputError(f"{image}: no such file; check the path")
            hashes[os.path.relpath(_place(image), root)] = digest
        rows = max(FEWEST_ROWS, math.ceil(len(hashes) / MOST_SHARDS))
        write_json(folder / INDEX, {"fingerprint": fingerprint, "rows": rows, "images": hashes})
        return cls(folder)

    def go_on(self) -> list[int]:
        """The shards that are still to be written, after noting the photos as they are now."""
        missing = [shard for shard, path in enumerate(self._paths) if not path.exists()]
        if missing:
            index = read_json(self.folder / INDEX)
            names = list(index["images"])
            for row in (row for shard in missing for row in self.rows(shard)):
                index["images"][names[row]] = photo_hash(self.images[row]) or self._hashes[row]
            write_json(self.folder / INDEX, index)
        return missing

    def __contains__(self, image: Path) -> bool:
        return _place(image) in self._rows

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        """The features of an image."""
        shard, row = divmod(self._rows[_place(image)], self._shard_rows)
        return torch.from_numpy(self._shards[shard][row].copy())

    @property
    def cells(self) -> int:
        """L, the regions of an image or the cells of the last frozen stage."""
        return self._shards[0].shape[1] if self._shards else 0

    def check(
        self, encoder: ConstantEncoder, preprocessing: Preprocessing, images: Sequence[Path]
    ) -> None:
        """Check that these are the features of `images`, and perhaps of more, by this encoder.

        A photo has changed if its content has, whatever its size. The photos themselves may be
        missing. Photos whose features are still to be computed may change.

        Raises:
            InputError: they are of another encoder, other weights, another preprocessing or other
                images, or photos have changed since.
        """
        if self.fingerprint != fingerprint(encoder, preprocessing):
            self._refuse("made by another encoder, other weights or another image size")
        if missing := [image for image in images if image not in self]:
            self._refuse(f"has no features of {missing[0]} and {len(missing) - 1} more")
        written = [path.exists() for path in self._paths]
        rows = [self._rows[_place(image)] for image in images]
        stale = [
            image
            for image, row, digest in zip(images, rows, _hashes_of(images), strict=True)
            if digest not in (None, self._hashes[row]) and written[row // self._shard_rows]
        ]
        if stale:
            self._refuse(f"{stale[0]} and {len(stale) - 1} more have changed since")

    def _refuse(self, reason: str) -> None:
        raise InputError(f"{self.folder}: {reason}; {REMEDY}")

    def rows(self, shard: int) -> range:
        """The rows of a shard."""
        first = shard * self._shard_rows
        return range(first, min(first + self._shard_rows, len(self.images)))

    def write(self, shard: int, features: Float16[Tensor, "rows L D"]) -> None:
        """Write a shard atomically."""
        with written_whole(self._paths[shard]) as path, path.open("wb") as file:
            np.save(file, features.numpy())

    @cached_property
    def _shards(self) -> list[np.ndarray]:
        found = []
        for path in self._paths:
            with reading(f"{path}: missing or damaged; `captioning features` writes it"):
                found.append(np.load(path, mmap_mode="r"))
        return found


def fingerprint(encoder: ConstantEncoder, preprocessing: Preprocessing) -> str:
    """A hash of the encoder's architecture and parameters and of the preprocessing."""
    digest = hashlib.sha256()
    for config in (encoder.config | {"weights": None}, preprocessing.config):
        # Without the module, so that a class that moves keeps its features.
        named = {"class": bare_name(config["class"])} if "class" in config else {}
        digest.update(repr(sorted((config | named).items())).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _hashes_of(images: Sequence[Path]) -> list[str | None]:
    """A hash of the content of each photo, None for a missing one."""
    with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL, and a slow disk overlaps
        return list(pool.map(photo_hash, images))


def _place(path: Path) -> str:
    return os.path.normpath(path.absolute())
