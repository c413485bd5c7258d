"""Features on disk: the frozen stages of an encoder run once per image, not once per epoch.

Shapes: L regions and D annotation width; if later stages are trained, L cells and D channels of the
last frozen stage.

A folder holds index.json (the encoder's fingerprint, the photos' hashes, and the rows of a shard)
and shards: features-00000.npy, ..., float16 (rows, L, D). The index is written first, shards are
written atomically: rows that a file lacks, and those without a hash, are still to be computed.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import cached_property
from io import BytesIO
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16, UInt8
from torch import Tensor, distributed
from torch.nn import Module

from captioning.configurable import bare_name
from captioning.data.photo_shards import photo_hash
from captioning.data.preprocessing import Preprocessing
from captioning.device import on_device
from captioning.errors import InputError, reading
from captioning.files import made_folder, only_writer, read_json, write_json, written_whole
from captioning.progress_bar import ProgressBar, say, stage
from captioning.threads import cut, in_threads, read_ahead

INDEX = "index.json"
REMEDY = "remove it or use another folder"
COMPUTED = "`captioning features` computes them"

MOST_SHARDS = 256  # all stay open, and a process may open about 1,000 files; half at first
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

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        shard, row = divmod(self._rows[_absolute(image)], self._shard_rows)
        return torch.from_numpy(self._shards[shard][row].copy())

    @property
    def cells(self) -> int:
        """L, the regions of an image or the cells of the last frozen stage."""
        return self._shards[0].shape[1] if self._shards else 0

    @cached_property
    def _shards(self) -> list[np.ndarray]:
        return [_opened(path) for path in self._paths]

    def check(self, encoder: Module, preprocessing: Preprocessing, images: Sequence[Path]) -> None:
        """Raise unless these are the features of `images`, and perhaps of more, by this encoder.

        A photo may be missing, but its content must not have changed.
        """
        self.check_encoder(encoder, preprocessing)
        waiting = set(chain(*self.waiting.values()))
        rows = [self._rows.get(_absolute(image), -1) for image in images]
        if lacking := [i for i, row in zip(images, rows, strict=True) if row in waiting | {-1}]:
            self._refuse(f"has no features of {lacking[0]} and {len(lacking) - 1} more", COMPUTED)
        known = list(self._hashes.values())
        now = zip(rows, _hashes_now(self.images[row] for row in rows), strict=True)
        if stale := [self.images[row] for row, now in now if now not in (None, known[row])]:
            self._refuse(f"{stale[0]} and {len(stale) - 1} more have changed since", COMPUTED)

    def check_encoder(self, encoder: Module, preprocessing: Preprocessing) -> None:
        if self.fingerprint != fingerprint(encoder, preprocessing):
            self._refuse("made by another encoder, other weights or another image size")

    def _refuse(self, reason: str, remedy: str = REMEDY) -> None:
        raise InputError(f"{self.folder}: {reason}; {remedy}")

    @property
    def waiting(self) -> dict[int, list[int]]:
        """The rows to compute, by shard."""
        hashes, found = list(self._hashes.values()), {}
        for shard in range(len(self._paths)):
            first = shard * self._shard_rows
            written = first + self._length(shard)
            rows = range(first, min(first + self._shard_rows, len(hashes)))
            found[shard] = [row for row in rows if row >= written or not hashes[row]]
        return {shard: rows for shard, rows in found.items() if rows}

    def _length(self, shard: int) -> int:
        return len(_opened(self._paths[shard])) if self._paths[shard].exists() else 0

    def expect(self, images: Sequence[Path]) -> dict[str, str]:
        """List new and changed photos in the index, as rows to compute.

        Returns:
            The hashes of the changed ones; give them to `note` once their features are written.
        """
        lengths = [self._length(shard) for shard in range(len(self._paths))]
        whole = [*takewhile(lambda length: length == self._shard_rows, lengths), 0]
        done = sum(lengths[: len(whole)])  # rows after the first that is missing count as lost
        known = dict(islice(self._hashes.items(), done))
        root = _absolute(self.folder)
        names = {os.path.relpath(_absolute(image), root): image for image in images}
        now = dict(zip(names, _hashes_now(names.values()), strict=True))
        if gone := [name for name in now if not now[name] and name not in known]:
            raise InputError(f"{names[gone[0]]}: no such file; check the path")
        found = {name: digest for name, digest in now.items() if digest}
        new = {name: digest for name, digest in found.items() if name not in known}
        changed = {name: each for name, each in found.items() if known.get(name, each) != each}
        if len(known) + len(new) > MOST_SHARDS * self._shard_rows:
            self._refuse(f"has too small shards for {len(new):,} more photos")
        for path in self._paths[len(whole) :]:
            path.unlink(missing_ok=True)
        if new or changed or done < len(self._hashes):
            self._hashes = known | new
            self.note(dict.fromkeys(changed, ""))
        return changed

    def note(self, hashes: dict[str, str]) -> None:
        """Keep hashes of photos in the index."""
        self._hashes |= hashes
        write_json(self.folder / INDEX, self._index | {"images": self._hashes})

    def write(self, rows: Sequence[int], features: Float16[Tensor, "rows L D"]) -> None:
        """Write rows of one shard, whose other ones stay."""
        shard = rows[0] // self._shard_rows
        length = max(self._length(shard), rows[-1] % self._shard_rows + 1)
        whole = np.empty((length, *features.shape[1:]), np.float16)
        if kept := self._length(shard):
            whole[:kept] = _opened(self._paths[shard])
        whole[[row % self._shard_rows for row in rows]] = features.numpy()
        content = BytesIO()  # written to a file, NumPy would not notice that the disk is full
        np.save(content, whole)
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
    hint: str = "",
) -> FeatureCache:
    """The features of `images` under `folder`; those of new or changed photos are computed.

    If torch.distributed is initialised, all processes must call this, and share the shards.

    Args:
        folder: where the features are, or will be written.
        encoder: the `constant` part of an Encoder.
        preprocessing: how a photo becomes an image.
        images: paths of the photos.
        batch_size: images encoded at a time.
        name: for the progress bar.
        faster: returns a function that equals the encoder in less time.
        hint: said before photos are encoded.
    """
    folder, process, count = Path(folder), 0, 1
    if distributed.is_available() and distributed.is_initialized():
        process, count = distributed.get_rank(), distributed.get_world_size()
    changed: dict[str, str] = {}
    is_writer = process == 0 and (not folder.exists() or os.access(folder, os.W_OK))
    with only_writer(folder) if is_writer else nullcontext():
        if process == 0:
            with stage(f"{name}: comparing {folder} with the photos"):
                if not (folder / INDEX).exists():
                    _begin(folder, fingerprint(encoder, preprocessing), len(images))
                cache = FeatureCache(folder)
                cache.check_encoder(encoder, preprocessing)
                changed = cache.expect(images)
        if count > 1:
            distributed.barrier()
        cache = FeatureCache(folder)  # fails if the processes do not share the folder
        rows = [rows for shard, rows in cache.waiting.items() if shard % count == process]
        encode = faster(encoder) if faster and rows else encoder
        device = next(encoder.parameters()).device

        def seen(row: int) -> UInt8[Tensor, "3 S S"]:
            return preprocessing(cache.images[row]).pixels

        @torch.inference_mode()
        def encoded(images: list[Tensor]) -> Float16[Tensor, "B P C"]:
            return encode(on_device(images, device)).half().cpu()

        pixels = read_ahead(seen, chain(*rows), AHEAD * batch_size)
        batches = (batch for its in rows for batch in cut(islice(pixels, len(its)), batch_size))
        shown = process == 0 and bool(rows)
        if shown and hint:
            say(f"encoding {sum(map(len, rows)):,} photos; {hint}")
        with (
            torch.backends.cudnn.flags(enabled=True, allow_tf32=False),  # as captioners on a GPU
            closing(in_threads(encoded, batches, device)) as features,
            ProgressBar(name, "images", sum(map(len, rows)), leave=True, shown=shown) as bar,
        ):
            for its in rows:
                parts = []
                for part in islice(features, math.ceil(len(its) / batch_size)):
                    parts.append(part)
                    bar.update(len(part))
                cache.write(its, torch.cat(parts))
        if count > 1:
            distributed.barrier()
        if changed:
            cache.note(changed)
    return cache


def _begin(folder: Path, key: str, photos: int) -> None:
    """Write the index of a folder that is new or empty."""
    made_folder(folder)
    if any(not file.name.startswith(".") for file in folder.iterdir()):
        raise InputError(f"{folder}: holds something other than features; {REMEDY}")
    rows = max(FEWEST_ROWS, math.ceil(2 * photos / MOST_SHARDS))
    write_json(folder / INDEX, {"fingerprint": key, "rows": rows, "images": {}})


def _opened(path: Path) -> np.ndarray:
    with reading(f"{path}: missing or damaged; `captioning features` writes it"):
        found: np.ndarray = np.load(path, mmap_mode="r")
    return found


def _hashes_now(photos: Iterable[Path]) -> list[str | None]:
    """A hash of the content of each photo, None for a missing one."""
    with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL, and a slow disk overlaps
        return list(pool.map(photo_hash, photos))


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
