"""The captioned photos of a finetuning, and what their words are to the model."""

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
from captioning.data.tokenizers import TokenizerName
from captioning.data.tokenizers import tokenizer as split_by
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.progress_bar import say
from captioning.search import Search

SAME_WORDS = 0.5
"""Share of the captions' tokens that the first model knows, from which on its parameters are of
use: 0.95 of drawn scenes, 0.77 of X-ray scans, but 0.22 of Dutch and 0.16 of German captions."""

FEW_WORDS = 1_000
"""A model of more words, which knows few of the captions', is of another language."""


@dataclass(frozen=True)
class Photos:
    """The captioned photos of a finetuning.

    Attributes:
        train: the user's photos to train on.
        val: the user's photos to validate on.
        kept_train: photos of another kind that train along.
        kept_val: photos of another kind to validate on.
        readers: of the user's photos, and of the others, as in a configuration.
        faulty: the photos that are left out.
    """

    train: list[Record]
    val: list[Record]
    kept_train: list[Record]
    kept_val: list[Record]
    readers: list[dict[str, Any]]
    faulty: list[str]

    @property
    def validation(self) -> list[Record]:
        """The photos to validate on, the user's first."""
        return [*self.val, *self.kept_val]

    @property
    def training_texts(self) -> list[str]:
        """The captions to train on, those of the user's photos first."""
        records = (*self.train, *self.kept_train)
        return [caption for record in records for caption in record.captions]

    @property
    def own_captions(self) -> int:
        """The number of captions of the user's photos."""
        return sum(len(record.captions) for record in (*self.train, *self.val))

    def digest(self) -> str:
        """A hash of all photos and their captions."""
        content = [
            (record.image_id, record.captions, photo_hash(record.image))
            for record in (*self.train, *self.kept_train, *self.validation)
        ]
        return hashlib.sha256(repr(content).encode(errors="replace")).hexdigest()[:16]

    @property
    def reader_settings(self) -> dict[str, Any]:
        """The reader of all photos, as in a configuration."""
        if len(self.readers) == 1:
            return self.readers[0]
        arguments = {"readers": self.readers, "balanced": True}
        return {"class_path": full_name(Joined), "init_args": arguments}


@dataclass(frozen=True)
class CaptionWords:
    """What the words of the captions to train on are to the model's.

    Attributes:
        are_known: whether the model splits captions alike, and knows at least `SAME_WORDS` of the
            words in captions of the user's photos.
        is_other_language: whether the model is of another language.
        longest: length that at most one of a hundred captions exceeds.
    """

    are_known: bool
    is_other_language: bool
    longest: int

    @classmethod
    def of(
        cls, photos: Photos, vocabulary: Vocabulary, tokenizer_name: TokenizerName
    ) -> "CaptionWords":
        """The words of these photos' captions."""
        texts = list(map(split_by(tokenizer_name), photos.training_texts))
        count = sum(len(record.captions) for record in photos.train)
        known_words = set(vocabulary.words)
        is_known = [word in known_words for text in texts[:count] for word in text]
        has_same_tokenizer = tokenizer_name == vocabulary.tokenizer
        are_known = has_same_tokenizer and bool(np.mean(is_known) >= SAME_WORDS)
        longest = int(np.quantile([len(text) for text in texts], 0.99, method="higher"))
        return cls(
            are_known,
            not are_known and len(vocabulary) > FEW_WORDS,
            min(longest, max(Search.limits["max_length"])),
        )


def read_photos(
    folder: str | Path, keep: str | Path | None, skip_bad: bool, options: dict[str, Any]
) -> "Photos":
    """The captioned photos of a finetuning, after a check for faults.

    Raises:
        InputError: there are faults, and `skip_bad` is off; or there are too few photos.
    """
    readers = [reader_for(folder, objects=False, **options)]
    own_ids = ""
    if keep is None:
        checked = check(readers[0])
    else:
        readers.append(reader_for(keep, objects=False))
        joined = Joined(readers, balanced=True)
        own_ids = f"{next(iter(joined.readers))}/"
        checked = check(joined)
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
    own = {r.image for r in (*train, *val) if str(r.image_id).startswith(own_ids)}
    roots = [(folder, options), *([] if keep is None else [(keep, {})])]
    photos = Photos(
        train=[record for record in train if record.image in own],
        val=[record for record in val if record.image in own],
        kept_train=[record for record in train if record.image not in own],
        kept_val=[record for record in val if record.image not in own],
        readers=[
            _reader_settings(one, root, arguments)
            for one, (root, arguments) in zip(readers, roots, strict=True)
        ],
        faulty=sorted(map(str, checked.faulty)),
    )
    counts = [(folder, len(photos.train), len(photos.val))]
    counts += [] if keep is None else [(keep, len(photos.kept_train), len(photos.kept_val))]
    for source, to_train, to_validate in counts:
        if to_train < 2 or not to_validate:
            raise InputError(
                f"{source}: {to_train} photos to train on and {to_validate} to validate; "
                "give at least 3 photos, 2 of them in train and 1 in val if there are splits"
            )
    return photos


def _reader_settings(reader: Reader, root: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """A reader as in a configuration."""
    arguments = {"root": str(root), **options, "objects": False}
    parameters = signature(type(reader)).parameters
    return {
        "class_path": full_name(type(reader)),
        "init_args": {name: value for name, value in arguments.items() if name in parameters},
    }
