"""The captioned photos of a finetuning, and how their words relate to the start's."""

import hashlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from captioning.configurable import full_name
from captioning.data.folder_check import check
from captioning.data.readers import DataSet, Joined, Reader, reader_for
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.progress_bar import say
from captioning.search import Search

SAME_WORDS = 0.5
"""Minimum share of the captions' words that the start must know for its words to be kept.

Measured shares: 0.95 of drawn scenes, 0.77 of X-ray scans, 0.22 of Dutch and 0.16 of German
captions.
"""

FREQUENT = 5
"""Minimum number of occurrences of a frequent word."""

HASH_LENGTH = 12
"""Characters of a photo's hash that are kept: enough to tell apart the photos of a folder."""

FEW_WORDS = 1_000
"""A start with more words than this, yet few of the captions', is of another language."""


@dataclass(frozen=True)
class Photos:
    """The captioned photos of a finetuning.

    Attributes:
        train: the user's photos to train on.
        val: the user's photos to validate on.
        rehearsal_train: the rehearsal photos (`--keep`) to train on, so that the model stays good
            at them.
        rehearsal_val: the rehearsal photos to validate on.
        data_set: all photos, faulty ones included.
        reader_settings: the reader of the data set, as in a configuration.
        faulty: paths of the photos that are left out.
        hashes: a hash of each photo's file.
    """

    train: list[Record]
    val: list[Record]
    rehearsal_train: list[Record]
    rehearsal_val: list[Record]
    data_set: DataSet
    reader_settings: dict[str, Any]
    faulty: list[str]
    hashes: dict[Path, str]

    @property
    def train_count(self) -> int:
        """Number of all photos to train on."""
        return len(self.train) + len(self.rehearsal_train)

    @property
    def validation(self) -> list[Record]:
        """The photos to validate on, the user's first."""
        return [*self.val, *self.rehearsal_val]

    @property
    def train_texts(self) -> list[str]:
        """The captions of the user's photos to train on."""
        return [caption for record in self.train for caption in record.captions]

    @property
    def rehearsal_texts(self) -> list[str]:
        """The captions of the rehearsal photos to train on."""
        return [caption for record in self.rehearsal_train for caption in record.captions]

    @property
    def caption_count(self) -> int:
        """Number of captions of the user's photos."""
        return sum(len(record.captions) for record in (*self.train, *self.val))

    @property
    def min_count(self) -> int:
        """How often a word must occur in the captions to be learnt."""
        return 1 if self.caption_count < 2_000 else 3

    def train_hashes(self) -> set[str]:
        """Short hashes of the photos to train on."""
        records = (*self.train, *self.rehearsal_train)
        return {self.short_hash(record) for record in records}

    def short_hash(self, record: Record) -> str:
        """The beginning of the hash of a photo."""
        return self.hashes[record.image][:HASH_LENGTH]

    def digest(self) -> str:
        """A hash of all photos and their captions."""
        content = [
            (record.image_id, record.captions, self.hashes[record.image])
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
        max_length: the 99th percentile of the captions' lengths, within the limit of searches.
        count: number of words of all training captions.
        frequent_count: number of those that occur `FREQUENT` times or more.
        rare_count: number of those that occur too rarely to be learnt (`Photos.min_count`).
        tokenizer_name: of the tokenizer that splits the captions into words.
    """

    are_known: bool
    is_other_language: bool
    max_length: int
    count: int
    frequent_count: int
    rare_count: int
    tokenizer_name: TokenizerName

    @classmethod
    def of(
        cls, photos: Photos, vocabulary: Vocabulary, tokenizer_name: TokenizerName
    ) -> "CaptionWords":
        split = tokenizer(tokenizer_name)
        user_captions = [split(text) for text in photos.train_texts]
        rehearsal_captions = [split(text) for text in photos.rehearsal_texts]
        start_words = set(vocabulary.words)
        is_known = [word in start_words for caption in user_captions for word in caption]
        has_same_tokenizer = tokenizer_name == vocabulary.tokenizer
        are_known = has_same_tokenizer and bool(np.mean(is_known) >= SAME_WORDS)
        lengths = [len(caption) for caption in (*user_captions, *rehearsal_captions)]
        length = int(np.quantile(lengths, 0.99, method="higher"))
        counts = Counter(
            word for caption in (*user_captions, *rehearsal_captions) for word in caption
        )
        return cls(
            are_known=are_known,
            is_other_language=not are_known and len(vocabulary) > FEW_WORDS,
            max_length=min(length, max(Search.limits["max_length"])),
            count=len(counts),
            frequent_count=sum(count >= FREQUENT for count in counts.values()),
            rare_count=sum(count < photos.min_count for count in counts.values()),
            tokenizer_name=tokenizer_name,
        )


def read_photos(
    folder: str | Path,
    rehearsal_folder: str | Path | None,
    skip_bad: bool,
    reader_options: dict[str, Any],
) -> Photos:
    """Read the captioned photos of a finetuning, after a check for faults.

    Args:
        folder: the user's photos.
        rehearsal_folder: the rehearsal photos; None for none.
        skip_bad: leave out faulty photos and rows.
        reader_options: options of `reader_for` for the user's photos; an option that is None has
            its default.

    Raises:
        InputError: there are faults, and `skip_bad` is off; or there are too few photos.
    """
    reader_options = {name: value for name, value in reader_options.items() if value is not None}
    reader = reader_for(folder, objects=False, **reader_options)
    settings = _reader_settings(reader, folder, reader_options)
    if rehearsal_folder is not None:
        rehearsal_reader = reader_for(rehearsal_folder, objects=False)
        readers = [settings, _reader_settings(rehearsal_reader, rehearsal_folder, {})]
        joined_settings = {"readers": readers, "balanced": True, "rehearsal": True}
        settings = {"class_path": full_name(Joined), "init_args": joined_settings}
        reader = Joined([reader, rehearsal_reader], balanced=True, rehearsal=True)
    data_check = check(reader)
    if not data_check.ok:
        say(*str(data_check).split("\n"))
        if not skip_bad:
            source = folder
            if rehearsal_folder is not None:
                source = f"{folder} or {rehearsal_folder}"
            raise InputError(f"{source}: has faults; mend them, or leave them out by --skip-bad")
    rehearsal_train: list[Record] = []
    rehearsal_val: list[Record] = []
    if rehearsal_folder is None:
        train, val = _good_records(folder, data_check.data_set, data_check.faulty)
    else:
        user_set, rehearsal_set = data_check.data_set.parts.values()
        train, val = _good_records(folder, user_set, data_check.faulty)
        rehearsal_train, rehearsal_val = _good_records(
            rehearsal_folder, rehearsal_set, data_check.faulty
        )
    return Photos(
        train=train,
        val=val,
        rehearsal_train=rehearsal_train,
        rehearsal_val=rehearsal_val,
        data_set=data_check.data_set,
        reader_settings=settings,
        faulty=sorted(map(str, data_check.faulty)),
        hashes=data_check.hashes,
    )


def _good_records(
    source: str | Path, data_set: DataSet, faulty: Collection[Path]
) -> tuple[list[Record], list[Record]]:
    """The records to train and to validate on, without faulty photos.

    Raises:
        InputError: there are too few.
    """

    def good_records(split: str) -> list[Record]:
        if data_set.find_split(split) is None:
            return []
        return [record for record in data_set.records(split) if record.image not in faulty]

    train, val = good_records("train"), good_records("val")
    if len(train) < 2 or not val:
        raise InputError(
            f"{source}: {len(train)} photos to train on and {len(val)} to validate; "
            "give at least 3 photos, 2 of them in train and 1 in val if there are splits"
        )
    return train, val


def _reader_settings(
    reader: Reader, root: str | Path, reader_options: dict[str, Any]
) -> dict[str, Any]:
    """The reader's `class_path` and `init_args`."""
    arguments = {"root": str(root), **reader_options, "objects": False}
    parameters = signature(type(reader)).parameters
    return {
        "class_path": full_name(type(reader)),
        "init_args": {name: value for name, value in arguments.items() if name in parameters},
    }
