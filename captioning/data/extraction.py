"""Runs the frozen stages of an encoder over all photos of a data set, in one or more processes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float16, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioning.data.feature_cache import INDEX, ConstantEncoder, FeatureCache, fingerprint
from captioning.data.preprocessing import Preprocessing
from captioning.data.ranks import decided_by_first_rank, process_and_count, run_on_all_ranks
from captioning.data.unfinished_features import RowWriter, UnfinishedFeatures, locked
from captioning.data.worker_priority import lower_priority
from captioning.progress_bar import ProgressBar, stage


def feature_cache(
    folder: str | Path,
    encoder: ConstantEncoder,
    preprocessing: Preprocessing,
    images: Sequence[Path],
    batch_size: int = 16,
    workers: int = 1,
    name: str = "features",
) -> FeatureCache:
    """The features of `images` under `folder`; missing ones are computed.

    If torch.distributed is initialised, all processes must call this and share the work. Rows
    that an earlier call finished are not computed again, however that call ended and however
    many processes it had.

    Args:
        folder: where the features are, or will be written.
        encoder: the `constant` part of an Encoder; uint8 images (B, 3, S, S) -> (B, L, D).
        preprocessing: how a photo becomes an image.
        images: paths of the photos.
        batch_size: images encoded at a time.
        workers: processes that read photos, for each process that encodes.
        name: what the progress calls them.

    Raises:
        InputError: the folder holds finished or unfinished features of another encoder, other
            weights, another preprocessing or other images; it is not a folder of features;
            another call is writing there; or a photo cannot be read.
    """
    folder, images = Path(folder), list(dict.fromkeys(images))

    def is_whole() -> bool:
        if not (folder / INDEX).exists():
            return False
        with stage(f"{name}: comparing {folder} with the photos"):
            FeatureCache(folder).check(encoder, preprocessing, images)
        return True

    if not decided_by_first_rank(is_whole):
        encoding = _Encoding(encoder, preprocessing, images, batch_size, workers)
        key = fingerprint(encoder, preprocessing)
        features = UnfinishedFeatures(folder, key, images, encoding.shape)
        with ExitStack() as lock:

            def begin() -> dict[int, int] | None:
                lock.enter_context(locked(folder))
                # Another call may have finished the features while this one waited for the lock.
                if is_whole():
                    return None
                with stage(f"{name}: preparing {folder}"):
                    return features.begin()

            finished = decided_by_first_rank(begin)
            if finished is not None:
                run_on_all_ranks(features.check_seen)
                sizes = encoding.complete(features, finished, name)
                decided_by_first_rank(lambda: features.finish(sizes))
    return FeatureCache(folder)


class _Encoding:
    """One process's share of the work.

    Attributes:
        shape: L and D.
    """

    def __init__(
        self,
        encoder: ConstantEncoder,
        preprocessing: Preprocessing,
        images: Sequence[Path],
        batch_size: int,
        workers: int,
    ) -> None:
        self.device = next(encoder.parameters()).device
        self.encoder = encoder.folded()
        self.photos = _Photos(images, preprocessing)
        self.batch_size = batch_size
        self.workers = workers
        size = preprocessing.size
        _, *shape = self._encoded(torch.zeros(1, 3, size, size, dtype=torch.uint8)).shape
        self.shape = (shape[0], shape[1])

    def complete(
        self, features: UnfinishedFeatures, finished: dict[int, int], name: str
    ) -> dict[int, int]:
        """Write the rows that are not finished; returns all rows with the bytes of their photos."""
        process, count = process_and_count()
        rows = [row for row in range(len(self.photos)) if row not in finished]
        batches = [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]
        loader = DataLoader(
            self.photos,
            batch_sampler=batches[process::count],
            num_workers=self.workers,
            worker_init_fn=lower_priority,
            pin_memory=self.device.type == "cuda",
        )
        sizes = dict(finished)
        with (
            features.writer() as writer,
            ProgressBar(
                name,
                "images",
                total=len(self.photos),
                initial=len(finished),
                leave=True,
                shown=process == 0,
            ) as progress,
        ):
            coming = iter(loader)
            # All processes do each batch in step, so an unreadable photo in one stops all of them.
            for _ in range(math.ceil(len(batches) / count)):
                for written in run_on_all_ranks(lambda: self._write_next(coming, writer)):
                    sizes |= written
                    progress.update(len(written))
        return sizes

    def _write_next(self, coming: Iterator[Any], writer: RowWriter) -> dict[int, int]:
        """Write the process's next batch, if it has one; returns its rows and bytes."""
        batch = next(coming, None)
        if batch is None:
            return {}
        rows, sizes, pixels = batch
        written = dict(zip(rows.tolist(), sizes.tolist(), strict=True))
        writer.write(written, self._encoded(pixels).numpy())
        return written

    @torch.inference_mode()
    def _encoded(self, pixels: UInt8[Tensor, "B 3 S S"]) -> Float16[Tensor, "B L D"]:
        return self.encoder(pixels.to(self.device, non_blocking=True)).half().cpu()


class _Photos(Dataset[tuple[int, int, Tensor]]):
    """For each row: its number, the size of the photo's file in bytes, and the image."""

    def __init__(self, images: Sequence[Path], preprocessing: Preprocessing) -> None:
        self.images = images
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[int, int, Tensor]:
        image = self.images[row]
        pixels = self.preprocessing(image).pixels
        return row, image.stat().st_size, pixels
