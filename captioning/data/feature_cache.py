"""Features on disk: the frozen stages of an encoder run once per image, not once per epoch.

Shapes: L regions and D annotation width; if later stages are trained, L cells and D channels of the
last frozen stage.

A folder holds index.json (the encoder's fingerprint, the photos' hashes, and the rows of a shard)
and shards: features-00000.npy, ..., float16 (rows, L, D). The index is written first. Shards are
written atomically, so a shard whose file exists is done.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16, UInt8
from torch import Tensor, distributed
from torch.nn import Module

from captioning.configurable import bare_name
from captioning.data.photo_shards import photo_hash, photo_size
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError, reading
from captioning.files import made_folder, read_json, write_json, written_whole
from captioning.progress_bar import ProgressBar, stage
from captioning.threads import cut, in_threads, read_ahead

INDEX = "index.json"
REMEDY = "remove it or give another place for the features"

MOST_SHARDS = 256  # all stay open, and a process may open about 1,000 files
FEWEST_ROWS = 64  # of a shard, which a killed process loses
AHEAD = 2  # batches whose photos are read ahead


class FeatureCache:
    """Half-precision features (L, D) by image, memory-mapped from the folder of `feature_cache`.

    `images` are the paths of the photos, in the order of the rows.

    Raises:
        InputError: the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._index = read_json(self.folder / INDEX)
        try:
            self.fingerprint: str = self._index["fingerprint"]
            self._shard_rows = int(self._index["rows"])
            self._hashes: dict[str, str] = dict(self._index["images"])
            "".join(self._hashes.values())  # earlier versions kept sizes
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{self.folder}: holds no features, or those of an earlier version; {REMEDY}"
            ) from None
        # The index holds paths relative to the folder, so they are valid in any working directory.
        root = _absolute(self.folder)
        self.images = [Path(os.path.normpath(f"{root}/{image}")) for image in self._hashes]
        self._rows = {str(image): row for row, image in enumerate(self.images)}
        self._paths = [
            self.folder / f"features-{shard:05d}.npy"
            for shard in range(math.ceil(len(self.images) / self._shard_rows))
        ]

    def __contains__(self, image: Path) -> bool:
        return _absolute(image) in self._rows

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        shard, row = divmod(self._rows[_absolute(image)], self._shard_rows)
        return torch.from_numpy(self._shards[shard][row].copy())

    @property
    def cells(self) -> int:
        """L, the regions of an image or the cells of the last frozen stage."""
        return self._shards[0].shape[1] if self._shards else 0

    @cached_property
    def _shards(self) -> list[np.ndarray]:
        found = []
        for path in self._paths:
            with reading(f"{path}: missing or damaged; `captioning features` writes it"):
                found.append(np.load(path, mmap_mode="r"))
        return found

    def check(self, encoder: Module, preprocessing: Preprocessing, images: Sequence[Path]) -> None:
        """Raise unless these are the features of `images`, and perhaps of more, by this encoder.

        A photo may be missing, but its content must not have changed.
        """
        if self.fingerprint != fingerprint(encoder, preprocessing):
            self._refuse("made by another encoder, other weights or another image size")
        if missing := [image for image in images if image not in self]:
            self._refuse(f"has no features of {missing[0]} and {len(missing) - 1} more")
        rows = {row for shard in self.missing for row in self.rows(shard)}
        rows = {self._rows[_absolute(image)] for image in images} - rows
        known = list(self._hashes.values())
        found = zip(rows, self._hashes_now(rows), strict=True)
        if stale := [self.images[row] for row, now in found if now not in (None, known[row])]:
            self._refuse(f"{stale[0]} and {len(stale) - 1} more have changed since")

    def _refuse(self, reason: str) -> None:
        raise InputError(f"{self.folder}: {reason}; {REMEDY}")

    @property
    def missing(self) -> list[int]:
        return [shard for shard, path in enumerate(self._paths) if not path.exists()]

    def note_photos(self) -> None:
        """Keep in the index what the photos of missing shards hold now."""
        rows = [row for shard in self.missing for row in self.rows(shard)]
        names = list(self._hashes)
        now = zip(rows, self._hashes_now(rows), strict=True)
        self._hashes |= {names[row]: digest for row, digest in now if digest}
        write_json(self.folder / INDEX, self._index | {"images": self._hashes})

    def _hashes_now(self, rows: Iterable[int]) -> list[str | None]:
        """A hash of the content of each photo, None for a missing one."""
        with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL, and a slow disk overlaps
            return list(pool.map(photo_hash, (self.images[row] for row in rows)))

    def rows(self, shard: int) -> range:
        first = shard * self._shard_rows
        return range(first, min(first + self._shard_rows, len(self.images)))

    def write(self, shard: int, features: Float16[Tensor, "rows L D"]) -> None:
        content = BytesIO()  # written to a file, NumPy would not notice that the disk is full
        np.save(content, features.numpy())
        with written_whole(self._paths[shard]) as path:
            path.write_bytes(content.getbuffer())


def feature_cache(
    folder: str | Path,
    encoder: Module,
    preprocessing: Preprocessing,
    images: Sequence[Path],
    batch_size: int = 16,
    name: str = "features",
    faster: Callable[[Any], Callable[[Tensor], Tensor]] | None = None,
) -> FeatureCache:
    """The features of `images` under `folder`; missing shards are computed.

    If torch.distributed is initialised, all processes must call this, and share the shards.

    Args:
        folder: where the features are, or will be written.
        encoder: the `constant` part of an Encoder.
        preprocessing: how a photo becomes an image.
        images: paths of the photos.
        batch_size: images encoded at a time.
        name: for the progress bar.
        faster: returns a function that equals the encoder in less time.
    """
    folder, process, count = Path(folder), 0, 1
    if distributed.is_available() and distributed.is_initialized():
        process, count = distributed.get_rank(), distributed.get_world_size()
    if process == 0:
        with stage(f"{name}: comparing {folder} with the photos"):
            if not (folder / INDEX).exists():
                _begin(folder, fingerprint(encoder, preprocessing), images)
            cache = FeatureCache(folder)
            cache.check(encoder, preprocessing, images)
            if cache.missing:
                cache.note_photos()
    if count > 1:
        distributed.barrier()
    cache = FeatureCache(folder)  # fails if the processes do not share the folder
    shards = [shard for shard in cache.missing if shard % count == process]
    rows = [cache.rows(shard) for shard in shards]
    encode = faster(encoder) if faster and shards else encoder
    device = next(encoder.parameters()).device

    def seen(row: int) -> UInt8[Tensor, "3 S S"]:
        return preprocessing(cache.images[row]).pixels

    @torch.inference_mode()
    def encoded(images: list[Tensor]) -> Float16[Tensor, "B P C"]:
        return encode(torch.stack(images).to(device)).half().cpu()

    pixels = read_ahead(seen, chain(*rows), AHEAD * batch_size)
    batches = (batch for its in rows for batch in cut(islice(pixels, len(its)), batch_size))
    shown = process == 0 and bool(shards)
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False),  # as captioners on a GPU
        closing(in_threads(encoded, batches, device)) as features,
        ProgressBar(name, "images", sum(map(len, rows)), leave=True, shown=shown) as bar,
    ):
        for shard, its in zip(shards, rows, strict=True):
            parts = []
            for part in islice(features, math.ceil(len(its) / batch_size)):
                parts.append(part)
                bar.update(len(part))
            cache.write(shard, torch.cat(parts))
    if count > 1:
        distributed.barrier()
    return cache


def _begin(folder: Path, key: str, images: Iterable[Path]) -> None:
    """Write the index of a folder that is new or empty."""
    made_folder(folder)
    if any(not file.name.startswith(".") for file in folder.iterdir()):
        raise InputError(f"{folder}: holds something other than features; {REMEDY}")
    if gone := next((image for image in images if photo_size(image) is None), None):
        raise InputError(f"{gone}: no such file; check the path")
    root = _absolute(folder)
    names = dict.fromkeys((os.path.relpath(_absolute(image), root) for image in images), "")
    rows = max(FEWEST_ROWS, math.ceil(len(names) / MOST_SHARDS))
    write_json(folder / INDEX, {"fingerprint": key, "rows": rows, "images": names})


def fingerprint(encoder: Module, preprocessing: Preprocessing) -> str:
    """A hash of the encoder's architecture and parameters and of the preprocessing."""
    digest = hashlib.sha256()
    settings: Any = encoder.config
    for config in (settings | {"weights": None}, preprocessing.config):
        # Without the module, so that a class that moves keeps its features.
        named = {"class": bare_name(config["class"])} if "class" in config else {}
        digest.update(repr(sorted((config | named).items())).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())
