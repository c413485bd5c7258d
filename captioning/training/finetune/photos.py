"""The captioned photos of a finetuning, and how their words relate to the start's."""

import hashlib
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from captioning.configurable import full_name
from captioning.data.folder_check import check
from captioning.data.photo_files import photo_hash
from captioning.data.readers import Joined, Reader, reader_for
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName, tokenizer
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.progress_bar import say
from captioning.search import Search

SAME_WORDS = 0.5
"""Minimum share of the captions' words that the start must know for its words to be kept.

Measured shares: 0.95 of drawn scenes, 0.77 of X-ray scans, 0.22 of Dutch and 0.16 of German
captions.
"""

FEW_WORDS = 1_000
"""A start with more words than this, yet few of the captions', is of another language."""


@dataclass(frozen=True)
class Photos:
    """The captioned photos of a finetuning.

    Attributes:
        train: the user's photos to train on.
        val: the user's photos to validate on.
        rehearsal_train: photos of `--keep`, which train along so that the model stays good at them.
        rehearsal_val: photos of `--keep` to validate on.
        reader: the data set of all photos.
        reader_settings: the same data set, as in a configuration.
        faulty: the photos that are left out.
    """

    train: list[Record]
    val: list[Record]
    rehearsal_train: list[Record]
    rehearsal_val: list[Record]
    reader: Reader
    reader_settings: dict[str, Any]
    faulty: list[str]

    @property
    def validation(self) -> list[Record]:
        """The photos to validate on, the user's first."""
        return [*self.val, *self.rehearsal_val]

    @property
    def training_texts(self) -> list[str]:
        """The captions to train on, those of the user's photos first."""
        records = (*self.train, *self.rehearsal_train)
        return [caption for record in records for caption in record.captions]

    @property
    def caption_count(self) -> int:
        """Number of captions of the user's photos."""
        return sum(len(record.captions) for record in (*self.train, *self.val))

    def digest(self) -> str:
        """A hash of all photos and their captions."""
        content = [
            (record.image_id, record.captions, photo_hash(record.image))
            for record in (*self.train, *self.rehearsal_train, *self.validation)
        ]
        return hashlib.sha256(repr(content).encode(errors="replace")).hexdigest()[:16]


@dataclass(frozen=True)
class CaptionWords:
    """How the words of the training captions relate to the vocabulary of the start.

    Attributes:
        are_known: whether the start has the same tokenizer, and at least `SAME_WORDS` of the words
            in the captions of the user's photos.
        is_other_language: whether the start is of another language.
        longest: the 99th percentile of the captions' lengths.
    """

    are_known: bool
    is_other_language: bool
    longest: int

    @classmethod
    def of(
        cls, photos: Photos, vocabulary: Vocabulary, tokenizer_name: TokenizerName
    ) -> "CaptionWords":
        split = tokenizer(tokenizer_name)
        captions = [split(text) for text in photos.training_texts]
        user_captions = captions[: sum(len(record.captions) for record in photos.train)]
        start_words = set(vocabulary.words)
        is_known = [word in start_words for caption in user_captions for word in caption]
        has_same_tokenizer = tokenizer_name == vocabulary.tokenizer
        are_known = has_same_tokenizer and bool(np.mean(is_known) >= SAME_WORDS)
        lengths = [len(caption) for caption in captions]
        longest = int(np.quantile(lengths, 0.99, method="higher"))
        return cls(
            are_known,
            not are_known and len(vocabulary) > FEW_WORDS,
            min(longest, max(Search.limits["max_length"])),
        )


def read_photos(
    folder: str | Path, keep: str | Path | None, skip_bad: bool, options: dict[str, Any]
) -> Photos:
    """Read the captioned photos of a finetuning, after a check for faults.

    Raises:
        InputError: there are faults, and `skip_bad` is off; or there are too few photos.
    """
    user_reader = reader_for(folder, objects=False, **options)
    reader, settings = user_reader, _reader_settings(user_reader, folder, options)
    if keep is not None:
        rehearsal_reader = reader_for(keep, objects=False)
        reader = Joined([user_reader, rehearsal_reader], balanced=True)
        readers = [settings, _reader_settings(rehearsal_reader, keep, {})]
        settings = {
            "class_path": full_name(Joined),
            "init_args": {"readers": readers, "balanced": True},
        }
    checked = check(reader)
    if not checked.ok:
        say(*str(checked).split("\n"))
        if not skip_bad:
            raise InputError(f"{folder}: has faults; mend them, or leave them out by --skip-bad")

    def good_records(name: str) -> list[Record]:
        if checked.data_set.find_split(name) is None:
            return []
        records = checked.data_set.records(name)
        return [record for record in records if record.image not in checked.faulty]

    train, val = good_records("train"), good_records("val")
    own_ids = f"{next(iter(reader.readers))}/" if isinstance(reader, Joined) else ""
    own = {r.image for r in (*train, *val) if str(r.image_id).startswith(own_ids)}
    photos = Photos(
        train=[record for record in train if record.image in own],
        val=[record for record in val if record.image in own],
        rehearsal_train=[record for record in train if record.image not in own],
        rehearsal_val=[record for record in val if record.image not in own],
        reader=reader,
        reader_settings=settings,
        faulty=sorted(map(str, checked.faulty)),
    )
    _require_photos(folder, photos.train, photos.val)
    if keep is not None:
        _require_photos(keep, photos.rehearsal_train, photos.rehearsal_val)
    return photos


def _require_photos(source: str | Path, train: list[Record], val: list[Record]) -> None:
    """Raise InputError if a data set has too few photos."""
    if len(train) < 2 or not val:
        raise InputError(
            f"{source}: {len(train)} photos to train on and {len(val)} to validate; "
            "give at least 3 photos, 2 of them in train and 1 in val if there are splits"
        )


def _reader_settings(reader: Reader, root: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """A reader as in a configuration."""
    arguments = {"root": str(root), **options, "objects": False}
    parameters = signature(type(reader)).parameters
    return {
        "class_path": full_name(type(reader)),
        "init_args": {name: value for name, value in arguments.items() if name in parameters},
    }
