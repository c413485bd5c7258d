"""A trained model against the people who described the same images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from captioning.data.dataset import CaptionDataset, collate
from captioning.data.records import Record
from captioning.data.shapes import faults, read_scenes
from captioning.files import write_json
from captioning.metrics.report import score
from captioning.models import Captioner, Search


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


@torch.inference_mode()
def evaluate(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    batch_size: int = 32,
    workers: int = 1,
) -> Evaluation:
    """Caption every image once, and score the captions against the records' own.

    Args:
        captioner: the model.
        records: images with reference captions.
        search: how words are chosen; the captioner's own if none.
        batch_size: images at a time.
        workers: processes that read images.

    Raises:
        InputError: a photo cannot be read.
    """
    dataset = CaptionDataset(records, captioner.vocabulary, captioner.preprocessing)
    loader = DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate)
    captions: dict[int | str, str] = {}
    with tqdm(
        total=len(records),
        desc="evaluate",
        unit="image",
        leave=False,
        disable=None,  # shown only where stderr is a terminal
    ) as progress:
        for batch in loader:
            annotations = captioner.encode(batch.images.to(captioner.device))
            decoded = captioner.decode(annotations, search)
            ids = [record.image_id for record in batch.records]
            captions.update(zip(ids, captioner.words(decoded), strict=True))
            progress.update(len(ids))
    references = {record.image_id: record.captions for record in records}
    return Evaluation(captions, score(captions, references))


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
