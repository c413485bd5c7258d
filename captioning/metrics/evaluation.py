"""A trained model against the people who described the same images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from captioning.data.dataset import Batch, CaptionDataset, collate
from captioning.data.features import FeatureCache
from captioning.data.records import Record
from captioning.data.shapes import faults, read_scenes
from captioning.data.workers import give_way
from captioning.files import write_json
from captioning.metrics.report import score
from captioning.models import Captioner, Search
from captioning.models.batches import seed_batch


class Evaluation(NamedTuple):
    """What a model said about a split, and how good it is.

    Attributes:
        captions: one caption per image, by image id.
        scores: see `captioning.metrics.report.score`.
    """

    captions: dict[int | str, str]
    scores: dict[str, float]

    def write(self, folder: str | Path) -> None:
        """Write captions.json, in COCO's results format, and scores.json."""
        results = [
            {"image_id": image_id, "caption": caption}
            for image_id, caption in self.captions.items()
        ]
        write_json(Path(folder) / "captions.json", results)
        write_json(Path(folder) / "scores.json", self.scores)


def evaluate(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    batch_size: int = 32,
    workers: int = 1,
    seed: int = 0,
    features: FeatureCache | None = None,
) -> Evaluation:
    """Caption every image once, and score the captions against the records' own.

    Args:
        captioner: the model.
        records: images with reference captions.
        search: how words are chosen; the captioner's own if none.
        batch_size: images at a time.
        workers: processes that read images.
        seed: of a search that samples.
        features: annotation vectors of the images by the captioner's encoder, to use instead of
            the photos.

    Raises:
        InputError: a photo cannot be read.
    """
    captions: dict[int | str, str] = {}
    for number, batch in batches(captioner, records, batch_size, workers, features=features):
        seed_batch(seed, number)
        captions |= caption_batch(captioner, batch, search)
    return scored(captions, records)


def batches(
    captioner: Captioner,
    records: Sequence[Record],
    batch_size: int,
    workers: int = 1,
    process: int = 0,
    processes: int = 1,
    features: FeatureCache | None = None,
) -> Iterator[tuple[int, Batch]]:
    """The numbered batches of one of several processes; those of all are the same as of one.

    The first process shows a progress bar on stderr, where that is a terminal.

    Args:
        captioner: the model that they are for.
        records: the images of all processes.
        batch_size: images at a time.
        workers: processes that read images.
        process: takes the batches `process`, `process + processes`, ...
        processes: how many share the images.
        features: annotation vectors to use instead of the photos.
    """
    dataset = CaptionDataset(
        records, captioner.vocabulary, captioner.preprocessing, features=features
    )
    everything = list(range(len(records)))
    mine = {
        number: everything[number * batch_size : (number + 1) * batch_size]
        for number in range(process, math.ceil(len(records) / batch_size), processes)
    }
    loader = DataLoader(
        dataset,
        batch_sampler=list(mine.values()),
        num_workers=0 if features else workers,  # a cached example costs less than its way
        collate_fn=collate,
        worker_init_fn=give_way,
        pin_memory=captioner.device.type == "cuda",
    )
    with tqdm(
        total=sum(map(len, mine.values())),
        desc="evaluate" if processes == 1 else f"process 1 of {processes}",
        unit="image",
        leave=False,
        disable=None if process == 0 else True,  # None: shown only on a terminal
    ) as progress:
        for number, batch in zip(mine, loader, strict=True):
            yield number, batch
            progress.update(len(batch.records))


@torch.no_grad()  # in inference mode autocast would cast all weights anew at every word
def caption_batch(
    captioner: Captioner, batch: Batch, search: Search | None = None
) -> dict[int | str, str]:
    """The best caption of every image, by image id.

    Args:
        captioner: the model.
        batch: images, or their annotation vectors.
        search: how words are chosen; the captioner's own if none.
    """
    annotations = captioner.encode(batch.images.to(captioner.device, non_blocking=True))
    words = captioner.words(captioner.decode(annotations, search))
    return {record.image_id: caption for record, caption in zip(batch.records, words, strict=True)}


def scored(captions: Mapping[int | str, str], records: Sequence[Record]) -> Evaluation:
    """The captions in the order of the records, and their scores."""
    references = {record.image_id: record.captions for record in records}
    ordered = {image_id: captions[image_id] for image_id in references}
    return Evaluation(ordered, score(ordered, references))


def share_right(
    captions: Mapping[int | str, str], data: str | Path, split: str
) -> dict[str, float]:
    """How many captions of drawn scenes are right in every attribute and relation they state.

    Args:
        captions: one caption per scene, by image id.
        data: the folder of the data set.
        split: its part.

    Returns:
        The share under "right", or nothing where the data set is not of drawn scenes.
    """
    if not (Path(data) / "annotations" / f"scenes_{split}.json").exists():
        return {}
    scenes = read_scenes(data, split)
    right = [not faults(caption, scenes[int(image)]) for image, caption in captions.items()]
    return {"right": sum(right) / len(right)}
