"""A model's captions of the images of a split."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from captioning.captioner import Captioner
from captioning.data.feature_cache import FeatureCache, fingerprint
from captioning.data.preprocessing import View
from captioning.data.readers import DataSet
from captioning.data.records import Record
from captioning.errors import InputError, raise_errors
from captioning.progress_bar import ProgressBar
from captioning.search import Search


def split_captions(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    batch_size: int = 32,
    features: str | Path | None = None,
) -> dict[int | str, str]:
    """One caption per image, by image id; raises PhotoError if a photo cannot be read.

    Args:
        captioner: the model.
        records: the images.
        search: default: the captioner's own.
        batch_size: images per batch.
        features: a folder of cached annotations of the images, to use instead of the photos.
    """
    photos = photos_of(captioner, records, features)
    found = raise_errors(captioner.stream(photos, search, batch_size=batch_size))
    captions: dict[int | str, str] = {}
    with ProgressBar("evaluate", "images", total=len(records)) as progress:
        for record, caption in zip(records, found, strict=True):
            captions[record.image_id] = caption.text
            progress.update()
    return captions


def photos_of(
    captioner: Captioner, records: Sequence[Record], features: str | Path | None
) -> Sequence[Path] | Iterator[View]:
    """The photos of records or, with a folder of features, views that hold these, not pixels."""
    images = [record.image for record in records]
    if features is None:
        return images
    encoder, side = captioner.model.encoder, captioner.preprocessing.size
    if encoder.constant is None:
        raise InputError(
            f"{features}: a model that trained its whole encoder cannot use features; omit "
            "--features"
        )
    cache = FeatureCache(features, fingerprint(encoder.constant, captioner.preprocessing))
    cache.check(images)
    whole = 0.0, 0.0, float(side), float(side)
    return (View(cache[image], whole, (side, side)) for image in images)


def training_captions(data_set: DataSet) -> list[str] | None:
    """The captions of the training split; None if the split or its photos are missing."""
    if "train" not in data_set.splits:
        return None
    try:
        records = data_set.records("train")
    except InputError:
        return None
    return [caption for record in records for caption in record.captions]
