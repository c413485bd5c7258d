"""A model's captions of the images of a split."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from captioning.captioner import Caption, Captioner
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
    *,
    batch_size: int = 32,
    features: str | Path | None = None,
) -> dict[int | str, str]:
    """Caption images; returns one caption per image, by image id.

    Args:
        captioner: the model.
        records: the images.
        search: default: the captioner's own.
        batch_size: images per batch.
        features: a folder of cached annotations of the images, to use instead of the photos.

    Raises:
        PhotoError: a photo cannot be read.
    """
    captions = caption_records(captioner, records, search, batch_size=batch_size, features=features)
    return {record.image_id: caption.text for record, caption in captions}


def caption_records(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    *,
    batch_size: int = 32,
    features: str | Path | None = None,
) -> Iterator[tuple[Record, Caption]]:
    """Caption images, as `split_captions` does, one after the other."""
    photos = photos_of(captioner, records, features)
    captions = raise_errors(captioner.stream(photos, search, batch_size=batch_size))
    with ProgressBar("evaluate", "images", total=len(records)) as progress:
        for record, caption in zip(records, captions, strict=True):
            yield record, caption
            progress.update()


def photos_of(
    captioner: Captioner, records: Sequence[Record], features: str | Path | None
) -> Sequence[Path] | Iterator[View]:
    """Return the photos of records or, with a folder of features, views of features."""
    images = [record.image for record in records]
    if features is None:
        return images
    encoder, side = captioner.model.encoder, captioner.preprocessing.size
    if encoder.frozen_part is None:
        raise InputError(
            f"{features}: a model that trained its whole encoder cannot use features; omit "
            "--features"
        )
    cache = FeatureCache(features, fingerprint(encoder.frozen_part, captioner.preprocessing))
    cache.check(images)
    crop = 0.0, 0.0, float(side), float(side)
    return (View(cache[image], crop, (side, side)) for image in images)


def training_captions(data_set: DataSet) -> list[str] | None:
    """Return the captions of the training split; None if the split or its photos are missing."""
    if "train" not in data_set.splits:
        return None
    try:
        records = data_set.records("train")
    except InputError:
        return None
    return [caption for record in records for caption in record.captions]
