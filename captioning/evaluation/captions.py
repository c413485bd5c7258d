"""A model's captions of the images of a split, computed by one process or several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils.data import DataLoader

from captioning.captioner import Captioner
from captioning.data.dataset import Batch, CaptionDataset, collate
from captioning.data.feature_cache import FeatureCache
from captioning.data.readers import Reader
from captioning.data.records import Record
from captioning.data.worker_priority import lower_priority
from captioning.errors import InputError
from captioning.inference.batches import cut, seed_batch
from captioning.inference.run_work import results
from captioning.inference.work import ALONE, Processes, Work
from captioning.progress_bar import ProgressBar
from captioning.search import Search


def split_captions(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    batch_size: int = 32,
    workers: int = 1,
    seed: int = 0,
    features: FeatureCache | None = None,
    processes: Processes = ALONE,
) -> dict[int | str, str] | None:
    """One caption per image, by image id. They do not depend on the number of processes.

    Args:
        captioner: the model.
        records: the images.
        search: the search; default: the captioner's own.
        batch_size: images per batch.
        workers: data loading workers of each process.
        seed: the seed of a search that samples.
        features: cached annotations of the images, instead of the photos.
        processes: the processes that share the work.

    Returns:
        The captions in the order of the records; None in all processes but the first.

    Raises:
        InputError: a photo cannot be read.
    """
    work = SplitCaptions(captioner, records, search, batch_size, workers, seed, features)
    found = results(work, processes)
    if found is None:
        return None
    captions = {image: caption for part in found for image, caption in part.items()}
    return {record.image_id: captions[record.image_id] for record in records}


@dataclass
class SplitCaptions(Work):
    """The work of `split_captions`, with the same arguments."""

    captioner: Captioner
    records: Sequence[Record]
    search: Search | None = None
    batch_size: int = 32
    workers: int = 1
    seed: int = 0
    features: FeatureCache | None = None
    captions: dict[int | str, str] = field(default_factory=dict)

    def prepare(self, processes: int) -> None:
        """Nothing to prepare."""

    def batches(self, process: int, processes: int) -> Iterator[tuple[int, Batch]]:
        """The numbered batches of one process: `process`, `process + processes`, ...

        The first process reports progress on stderr.
        """
        dataset = CaptionDataset(
            self.records,
            self.captioner.vocabulary,
            self.captioner.preprocessing,
            features=self.features,
        )
        parts = list(cut(range(len(self.records)), self.batch_size))
        mine = {number: parts[number] for number in range(process, len(parts), processes)}
        loader = DataLoader(
            dataset,
            batch_sampler=list(mine.values()),
            # Reading the cache costs less than a worker.
            num_workers=0 if self.features else self.workers,
            collate_fn=collate,
            worker_init_fn=lower_priority,
            pin_memory=self.captioner.device.type == "cuda",
        )
        with ProgressBar(
            "evaluate" if processes == 1 else f"process 1 of {processes}",
            "images",
            total=sum(map(len, mine.values())),
            shown=process == 0,
        ) as progress:
            for number, batch in zip(mine, loader, strict=True):
                yield number, batch
                progress.update(len(batch.records))

    @torch.no_grad()  # in inference mode, autocast would cast all weights again at every word
    def step(self, batch: tuple[int, Batch]) -> None:
        """Caption a batch."""
        number, images = batch
        seed_batch(self.seed, number)
        pixels = images.images.to(self.captioner.device, non_blocking=True)
        found = self.captioner.decode(self.captioner.encode(pixels), self.search)
        for record, caption in zip(images.records, self.captioner.words(found), strict=True):
            self.captions[record.image_id] = caption

    def result(self) -> dict[int | str, str]:
        """The captions of this process's images."""
        return self.captions


def training_captions(reader: Reader) -> list[str] | None:
    """The captions of the training split; None if the split or its photos are missing."""
    if "train" not in reader.splits:
        return None
    try:
        return [caption for record in reader.read("train") for caption in record.captions]
    except InputError:
        return None
