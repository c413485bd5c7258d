"""Runs the frozen stages of an encoder over all photos of a data set, in one or more processes."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import DataLoader

from captioning.data.dataset import lower_priority
from captioning.data.feature_cache import INDEX, ConstantEncoder, FeatureCache, fingerprint
from captioning.data.preprocessing import Preprocessing
from captioning.data.ranks import decided_by_first_rank, process_and_count, run_on_all_ranks
from captioning.progress_bar import ProgressBar, stage
from captioning.threads import in_threads


def feature_cache(
    folder: str | Path,
    encoder: ConstantEncoder,
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
        faster: returns a function that equals the encoder in less time; used if shards are missing.

    Raises:
        InputError: the folder holds something else, or a photo cannot be read.
    """
    folder, images = Path(folder), list(dict.fromkeys(images))

    def begin() -> list[int]:
        with stage(f"{name}: comparing {folder} with the photos"):
            if (folder / INDEX).exists():
                cache = FeatureCache(folder)
                cache.check(encoder, preprocessing, images)
            else:
                cache = FeatureCache.begin(folder, fingerprint(encoder, preprocessing), images)
            return cache.go_on()

    missing = decided_by_first_rank(begin)
    found: list[FeatureCache] = []
    run_on_all_ranks(lambda: found.append(FeatureCache(folder)))  # fails if it is not shared
    [cache] = found
    if missing:
        device = next(encoder.parameters()).device
        encode = encoder if faster is None else faster(encoder)
        before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False  # as where a captioner is moved to a GPU
        try:
            _write(cache, encode, device, preprocessing, missing, batch_size, workers, name)
        finally:
            torch.backends.cudnn.allow_tf32 = before
    return cache


def _write(
    cache: FeatureCache,
    encode: Callable[[Tensor], Tensor],
    device: torch.device,
    preprocessing: Preprocessing,
    missing: list[int],
    batch_size: int,
    workers: int,
    name: str,
) -> None:
    """Write the missing shards; process p of P writes every P-th, from the p-th on."""
    process, count = process_and_count()
    mine = missing[process::count]
    batches = [
        [list(rows[first : first + batch_size]) for first in range(0, len(rows), batch_size)]
        for rows in map(cache.rows, mine)
    ]
    photos: Any = cache.images  # a list is all that a DataLoader needs
    loader: DataLoader[Any] = DataLoader(
        photos,
        batch_sampler=list(chain(*batches)),
        num_workers=workers,
        collate_fn=partial(_pixels, preprocessing),
        worker_init_fn=lower_priority,
        pin_memory=device.type == "cuda",
    )
    total, left = len(cache.images), sum(len(cache.rows(shard)) for shard in missing)

    @torch.inference_mode()
    def encoded(images: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B P C"]:
        return encode(images.to(device, non_blocking=True)).half().cpu()

    bar = ProgressBar(name, "images", total, initial=total - left, leave=True, shown=process == 0)
    with closing(in_threads(encoded, loader, device)) as features, bar as progress:

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


def _pixels(preprocessing: Preprocessing, images: list[Path]) -> UInt8[Tensor, "B 3 S S"]:
    return torch.stack([preprocessing(image).pixels for image in images])
