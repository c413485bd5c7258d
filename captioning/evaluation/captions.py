"""A model's captions of the images of a split, computed by one process or several."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from captioning.captioner import Captioner
from captioning.captioner.ensemble import JointEncoder
from captioning.data.dataset import Batch, CaptionDataset, collate, lower_priority
from captioning.data.feature_cache import FeatureCache
from captioning.data.readers import Reader
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.inference.batches import seeded
from captioning.inference.processes import ALONE, Processes, results
from captioning.progress_bar import ProgressBar
from captioning.search import Search
from captioning.threads import cut, in_threads


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
        search: default: the captioner's own.
        batch_size: images per batch.
        workers: data loading workers of each process.
        seed: of a search that samples.
        features: cached annotations of the images, instead of the photos.
        processes: those that share the work.

    Returns:
        The captions in the order of the records; None in all processes but the first.

    Raises:
        InputError: a photo cannot be read.
    """

    search = seeded(search or captioner.search, seed)

    @torch.no_grad()  # in inference mode, autocast would cast all weights again at every word
    def captions_of(batch: Batch) -> dict[int | str, str]:
        images = batch.images.to(captioner.device, non_blocking=True)
        ids = [record.image_id for record in batch.records]
        chosen = search.for_images(str(image).encode() for image in ids)
        found = captioner.decode(captioner.encode(images), chosen)
        return dict(zip(ids, captioner.sentences(found), strict=True))

    def share(process: int, count: int) -> dict[int | str, str]:
        mine = batches(captioner, records, batch_size, workers, process, count, features)
        found = in_threads(captions_of, mine, captioner.device)
        return dict(item for part in found for item in part.items())

    found = results(captioner, share, processes)
    if found is None:
        return None
    captions = {image: caption for part in found for image, caption in part.items()}
    return {record.image_id: captions[record.image_id] for record in records}


def batches(
    captioner: Captioner,
    records: Sequence[Record],
    batch_size: int,
    workers: int = 1,
    process: int = 0,
    processes: int = 1,
    features: FeatureCache | None = None,
) -> Iterator[Batch]:
    """The batches of one process; their union does not depend on the number of processes.

    Process number `process` gets batches `process`, `process + processes`, ... The first one
    reports progress on stderr. See `split_captions` for the other arguments.
    """
    dataset = CaptionDataset(
        records, captioner.vocabulary, captioner.preprocessing, features=features
    )
    mine = list(cut(range(len(records)), batch_size))[process::processes]
    loader = DataLoader(
        dataset,
        batch_sampler=mine,
        num_workers=0 if features else workers,  # reading the cache costs less than a worker
        collate_fn=collate,
        worker_init_fn=lower_priority,
        pin_memory=captioner.device.type == "cuda",
    )
    with ProgressBar(
        "evaluate" if processes == 1 else f"process 1 of {processes}",
        "images",
        total=sum(map(len, mine)),
        shown=process == 0,
    ) as progress:
        for batch in loader:
            yield batch
            progress.update(len(batch.records))


def training_captions(reader: Reader) -> list[str] | None:
    """The captions of the training split; None if the split or its photos are missing."""
    if "train" not in reader.splits:
        return None
    try:
        return [caption for record in reader.read("train") for caption in record.captions]
    except InputError:
        return None


def features_of(
    folder: str | Path | None, captioner: Captioner, records: Sequence[Record]
) -> FeatureCache | None:
    """The cached annotations of the records' images, if given; they must be of this encoder."""
    if folder is None:
        return None
    if isinstance(captioner.model.encoder, JointEncoder):
        raise InputError(
            f"{folder}: features are of one encoder at one image size, but the models of this "
            "ensemble differ in these; omit --features"
        )
    if captioner.model.encoder.constant is None:
        raise InputError(
            f"{folder}: this model trained its whole encoder, so it has no features; "
            "omit --features"
        )
    features = FeatureCache(folder)
    images = [record.image for record in records]
    features.check(captioner.model.encoder.constant, captioner.preprocessing, images)
    return features
