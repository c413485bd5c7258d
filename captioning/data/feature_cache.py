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
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float16, UInt8
from torch import Tensor, distributed
from torch.nn import Module
from torch.utils.data import DataLoader

from captioning.configurable import bare_name
from captioning.data.photo_shards import photo_hash, photo_size
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError, reading
from captioning.files import made_folder, read_json, write_json, written_whole
from captioning.progress_bar import ProgressBar, stage
from captioning.threads import cut, in_threads

Result = TypeVar("Result")

INDEX = "index.json"
REMEDY = "remove it or give another place for the features"

MOST_SHARDS = 256  # all stay open, and a process may open about 1,000 files
FEWEST_ROWS = 64  # of a shard, which a killed process loses


class FeatureCache:
    """Half-precision features (L, D) by image, memory-mapped from a folder.

    `images` are the paths of the photos, in the order of the rows.

    Args:
        folder: where `feature_cache` wrote them.

    Raises:
        InputError: the folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._index = read_json(self.folder / INDEX)
        try:
            self.fingerprint: str = self._index["fingerprint"]
            self._shard_rows = int(self._index["rows"])
            hashes: dict[str, str] = dict(self._index["images"])
            "".join(hashes.values())  # earlier versions kept sizes
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{self.folder}: holds no features, or those of an earlier version; {REMEDY}"
            ) from None
        # The index holds paths relative to the folder, so they are valid in any working directory.
        root = _absolute(self.folder)
        self.images = [Path(os.path.normpath(f"{root}/{image}")) for image in hashes]
        self._rows = {str(image): row for row, image in enumerate(self.images)}
        count = math.ceil(len(self.images) / self._shard_rows)
        self._paths = [self.folder / f"features-{shard:05d}.npy" for shard in range(count)]

    def __contains__(self, image: Path) -> bool:
        return _absolute(image) in self._rows

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        """The features of an image."""
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

        The content of a photo must not have changed since its features were computed; the photo
        itself may be missing.
        """
        if self.fingerprint != fingerprint(encoder, preprocessing):
            self._refuse("made by another encoder, other weights or another image size")
        if missing := [image for image in images if image not in self]:
            self._refuse(f"has no features of {missing[0]} and {len(missing) - 1} more")
        written = [path.exists() for path in self._paths]
        rows = {image: self._rows[_absolute(image)] for image in images}
        done = [image for image, row in rows.items() if written[row // self._shard_rows]]
        hashes = list(self._index["images"].values())
        found = zip(done, _hashes_of(done), strict=True)
        stale = [image for image, digest in found if digest not in (None, hashes[rows[image]])]
        if stale:
            self._refuse(f"{stale[0]} and {len(stale) - 1} more have changed since")

    def _refuse(self, reason: str) -> None:
        raise InputError(f"{self.folder}: {reason}; {REMEDY}")

    def missing(self) -> list[int]:
        """The shards that are still to be written; the index gets their photos as they are now."""
        found = [shard for shard, path in enumerate(self._paths) if not path.exists()]
        rows = [row for shard in found for row in self.rows(shard)]
        hashes, names = self._index["images"], list(self._index["images"])
        for row, digest in zip(rows, _hashes_of(self.images[row] for row in rows), strict=True):
            hashes[names[row]] = digest or hashes[names[row]]
        if found:
            write_json(self.folder / INDEX, self._index)
        return found

    def rows(self, shard: int) -> range:
        """The rows of a shard."""
        first = shard * self._shard_rows
        return range(first, min(first + self._shard_rows, len(self.images)))

    def write(self, shard: int, features: Float16[Tensor, "rows L D"]) -> None:
        """Write a shard atomically."""
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
    workers: int = 1,
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
        workers: processes that read photos, for each process that encodes.
        name: of the features in the progress bar.
        faster: returns a function that equals the encoder in less time.
    """
    folder, (process, count) = Path(folder), process_and_count()

    def begin() -> list[int]:
        if process:
            return []
        with stage(f"{name}: comparing {folder} with the photos"):
            if not (folder / INDEX).exists():
                _begin(folder, fingerprint(encoder, preprocessing), images)
            cache = FeatureCache(folder)
            cache.check(encoder, preprocessing, images)
            return cache.missing()

    missing = run_on_all_ranks(begin)[0]
    [cache, *_] = run_on_all_ranks(lambda: FeatureCache(folder))  # fails if it is not shared
    if not missing:
        return cache
    device = next(encoder.parameters()).device
    encode = encoder if faster is None else faster(encoder)
    mine = missing[process::count]  # process p of P writes every P-th, from the p-th on
    batches = [list(map(list, cut(cache.rows(shard), batch_size))) for shard in mine]
    photos: Any = cache.images  # a list is all that a DataLoader needs
    loader: DataLoader[Any] = DataLoader(
        photos,
        batch_sampler=list(chain(*batches)),
        num_workers=workers,
        collate_fn=partial(_pixels, preprocessing),
        worker_init_fn=lower_priority,
        pin_memory=device.type == "cuda",
    )

    @torch.inference_mode()
    def encoded(images: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B P C"]:
        return encode(images.to(device, non_blocking=True)).half().cpu()

    total, left = len(cache.images), sum(len(cache.rows(shard)) for shard in missing)
    bar = ProgressBar(name, "images", total, initial=total - left, leave=True, shown=process == 0)
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False),  # as captioners on a GPU
        closing(in_threads(encoded, loader, device)) as features,
        bar as progress,
    ):

        def write(place: int) -> int:
            if place >= len(mine):
                return 0
            parts = []
            for batch in batches[place]:
                parts.append(next(features))
                progress.update(len(batch))
            cache.write(mine[place], torch.cat(parts))
            return sum(map(len, parts))

        # All processes do their shards in step, so an unreadable photo in one stops all of them.
        for place in range(math.ceil(len(missing) / count)):
            done = run_on_all_ranks(partial(write, place))
            progress.update(sum(done) - done[process])
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


def _pixels(preprocessing: Preprocessing, images: list[Path]) -> UInt8[Tensor, "B 3 S S"]:
    return torch.stack([preprocessing(image).pixels for image in images])


def lower_priority(worker: int) -> None:
    """Lower the priority of a DataLoader's worker; a `worker_init_fn`.

    The threads of a step wait for each other, so a worker on the core of one delays them all. On
    two cores this makes training a third faster.
    """
    if sys.platform != "win32":
        os.nice(10)


def process_and_count() -> tuple[int, int]:
    """The rank of this process and the number of processes."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def run_on_all_ranks(step: Callable[[], Result]) -> list[Result]:
    """The picklable results of a step that every rank runs, in rank order.

    A failure on one rank raises on all, so that no rank waits for one that has stopped.
    """
    outcome: tuple[Any, Exception | None]
    try:
        outcome = step(), None
    except Exception as error:
        outcome = None, error
    outcomes: list[Any] = [outcome]
    if (count := process_and_count()[1]) > 1:
        reason = outcome[1] and InputError(str(outcome[1]) or repr(outcome[1]))
        outcomes = [None] * count
        distributed.all_gather_object(outcomes, (outcome[0], reason))
    for failure in (outcome[1], *(error for _, error in outcomes)):
        if failure is not None:
            raise failure
    return [result for result, _ in outcomes]


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


def _hashes_of(images: Iterable[Path]) -> list[str | None]:
    """A hash of the content of each photo, None for a missing one."""
    with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL, and a slow disk overlaps
        return list(pool.map(photo_hash, images))


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())
