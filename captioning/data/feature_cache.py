"""Stores the features of an encoder's frozen stages, so that they run once, not every epoch.

Shapes: L regions and D annotation width; if later stages are trained, L cells and D channels of the
last frozen stage.

A folder holds a file for each batch: features-000000.safetensors, ..., with float16 (rows, L, D)
and, as metadata, an index: the encoder's fingerprint and the photos' hashes, in the order of the
rows. Files are written atomically and never changed. If several files have a photo, the last one
counts.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float16
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, distributed
from torch.nn import Module

from captioning.configurable import bare_name
from captioning.data.photo_files import photo_hash
from captioning.data.preprocessing import Preprocessing, View
from captioning.device import on_device
from captioning.errors import InputError, reading
from captioning.files import only_writer, written_whole
from captioning.progress_bar import ProgressBar, say, stage
from captioning.threads import batched, in_threads, read_ahead

COMPUTE_HINT = "`captioning features` computes them"

BATCH = 16  # photos of a file, which a killed process loses
BATCHES_AHEAD = 2  # batches whose photos are read ahead


class FeatureCache:
    """Maps images to half-precision features (L, D), in memory-mapped files of `feature_cache`.

    Args:
        folder: the folder of the features.
        key: the `fingerprint` of the encoder that computed them.

    Raises:
        InputError: the folder holds something else, or a damaged file.
    """

    def __init__(self, folder: str | Path, key: str) -> None:
        self.folder = Path(folder)
        self._hashes: dict[str, str] = {}
        self._rows: dict[str, tuple[Tensor, int]] = {}  # a file's features (rows, L, D), and a row
        files = sorted(self.folder.glob("features-*.safetensors"))
        if not files and any(self.folder.glob("[!.]*")):
            self._refuse("holds something other than features, or those of an earlier version")
        self.next_file = int(files[-1].stem.rpartition("-")[2]) + 1 if files else 0
        # The files hold paths relative to the folder, so they are valid in any working directory.
        root = _absolute(self.folder)
        for path in files:
            damaged = f"{path}: damaged; remove it, and `captioning features` writes it"
            index_errors = (AttributeError, LookupError, TypeError)
            with reading(damaged, SafetensorError, *index_errors), safe_open(path, "pt") as file:
                index = json.loads(file.metadata()["index"])
                features = file.get_tensor("features")
                encoder_key, images = index["fingerprint"], index["images"].items()
                if features.ndim != 3 or len(features) != len(images):
                    raise ValueError("photos and features differ in number")
            if encoder_key != key:
                self._refuse("made by another encoder, other weights or another image size")
            for row, (name, digest) in enumerate(images):
                image = os.path.normpath(f"{root}/{name}")
                self._hashes[image], self._rows[image] = digest, (features, row)

    def __getitem__(self, image: Path) -> Float16[Tensor, "L D"]:
        features, row = self._rows[_absolute(image)]
        return features[row].clone()

    def check(self, images: Sequence[Path]) -> None:
        """Raise if an image has no features, or has changed since they were computed."""
        if missing := self.missing(images):
            self._refuse(
                f"has no features of {missing[0]} and {len(missing) - 1} more", COMPUTE_HINT
            )
        if changed := list(self.changed(images)):
            self._refuse(
                f"{changed[0]} and {len(changed) - 1} more have changed since", COMPUTE_HINT
            )

    def _refuse(self, reason: str, remedy: str = "remove it or use another folder") -> None:
        raise InputError(f"{self.folder}: {reason}; {remedy}")

    def missing(self, images: Iterable[Path]) -> list[Path]:
        """The images without features."""
        return [image for image in images if _absolute(image) not in self._rows]

    def changed(self, images: Sequence[Path]) -> dict[str, str]:
        """Hashes of new and changed photos by their path; deleted photos are left out."""
        with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL, and a slow disk overlaps
            hashes = pool.map(photo_hash, images)
            current = dict(zip(map(_absolute, images), hashes, strict=True))
        changed = {}
        for image, digest in current.items():
            if digest is not None and digest != self._hashes.get(image):
                changed[image] = digest
        return changed

    def to_encode(self, images: Sequence[Path]) -> dict[str, str]:
        """As `changed`; raises InputError if a photo without features is deleted."""
        changed = self.changed(images)
        for image in self.missing(images):
            if _absolute(image) not in changed:
                raise InputError(f"{image}: no such file; check the path")
        return changed


def feature_cache(
    folder: str | Path,
    encoder: Module,
    preprocessing: Preprocessing,
    *,
    images: Sequence[Path],
    name: str = "features",
    faster: Callable[[Any], Callable[[Tensor], Tensor]] | None = None,
    hint: str = "",
) -> FeatureCache:
    """Open the features of images, after computing those of new and changed photos.

    If torch.distributed is initialised, all processes must call this; they share the batches.

    Args:
        folder: the folder of the features, created if missing.
        encoder: the `Encoder.frozen_part`.
        preprocessing: turns photos into images.
        images: paths of the photos.
        name: of the progress bar.
        faster: maps the encoder to an equal but faster function.
        hint: printed before photos are encoded.
    """
    folder, process, count = Path(folder), 0, 1
    if distributed.is_available() and distributed.is_initialized():
        process, count = distributed.get_rank(), distributed.get_world_size()
    key, root = fingerprint(encoder, preprocessing), _absolute(folder)
    hashes: dict[str, str] = {}  # of the photos to encode, by their paths
    first_file = 0  # its number
    is_writer = process == 0 and (not folder.exists() or os.access(folder, os.W_OK))
    with only_writer(folder) if is_writer else nullcontext():
        if is_writer:
            for unfinished in folder.glob(".features-*"):  # of a killed process
                unfinished.unlink()
        if process == 0:
            with stage(f"{name}: comparing {folder} with the photos"):
                cache = FeatureCache(folder, key)
                hashes, first_file = cache.to_encode(images), cache.next_file
        if count > 1:
            work: list[Any] = [hashes, first_file]
            distributed.broadcast_object_list(work)
            hashes, first_file = work
        batches = list(enumerate(batched(hashes, BATCH), first_file))[process::count]
        photos = [Path(photo) for _, batch in batches for photo in batch]
        encode = faster(encoder) if faster and photos else encoder
        device = next(encoder.parameters()).device

        @torch.inference_mode()
        def encode_batch(views: list[View]) -> Float16[Tensor, "B P C"]:
            return encode(on_device([view.pixels for view in views], device)).half().cpu()

        visible = process == 0 and bool(photos)
        if visible and hint:
            say(f"encoding {len(photos):,} photos; {hint}")
        views = batched(read_ahead(preprocessing, photos, BATCHES_AHEAD * BATCH), BATCH)
        with (
            torch.backends.cudnn.flags(enabled=True, allow_tf32=False),  # as captioners on a GPU
            closing(in_threads(encode_batch, views, device)) as features,
            ProgressBar(name, "images", len(photos), leave=True, visible=visible) as bar,
        ):
            for (number, batch), rows in zip(batches, features, strict=True):
                names = {os.path.relpath(photo, root): hashes[photo] for photo in batch}
                index = json.dumps({"fingerprint": key, "images": names})
                with written_whole(folder / f"features-{number:06d}.safetensors") as path:
                    path.write_bytes(save({"features": rows.contiguous()}, {"index": index}))
                bar.update(len(batch))
        if count > 1:
            distributed.barrier()
    cache = FeatureCache(folder, key)
    if missing := cache.missing(images):
        raise InputError(f"{folder}: has no features of {missing[0]}; let all processes share it")
    return cache


def fingerprint(encoder: Module, preprocessing: Preprocessing) -> str:
    """Hash the encoder's architecture and parameters, and the preprocessing."""
    digest = hashlib.sha256()
    settings: Any = encoder.config
    for config in (settings | {"weights": None}, preprocessing.config):
        # Without the module, so that a class that moves keeps its features.
        bare_class = {"class": bare_name(config["class"])} if "class" in config else {}
        digest.update(repr(sorted((config | bare_class).items())).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())
