"""The training and validation batches of a data set, as a Lightning data module."""

import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

from captioning.data.dataset import CaptionDataset, SeededSampler, collate, mentions_side
from captioning.data.feature_cache import FeatureCache, feature_cache
from captioning.data.images import MEGAPIXELS
from captioning.data.preprocessing import Fit, MirroredPreprocessing, Preprocessing
from captioning.data.readers import DataSet, Joined, Reader
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokens import is_english, tokenize
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.progress_bar import is_first_process, say, stage

SHARED_MEMORY = Path("/dev/shm")
"""Shared memory of Linux, which data loader workers use; Docker limits it to 64 MB by default."""

LANGUAGE_SAMPLE = 2000
"""Maximum number of training captions from which their language is detected."""


@dataclass(eq=False)
class CaptionData(pl.LightningDataModule):
    """Training and validation batches of a data set, and the vocabulary of its training captions.

    Args:
        reader: the data set.
        size: side of the square images in pixels.
        fit: how a photo becomes a square: crop, pad or squeeze; see `Preprocessing`.
        batch_size: B, images per step.
        captions_per_image: N, maximum number of captions of an image in a step.
        min_count: words that occur less often in the training captions become `<unk>`.
        max_tokens: maximum tokens of a training caption, EOS included; longer ones are truncated.
        augment: random crops while training, and mirroring if captions are English and none of
            the photo mentions left or right.
        features: folder of the features that the encoder's frozen stages compute; the first
            training, or `captioning features`, writes them. Null encodes the images every epoch.
        mirror: with `features`, train on mirrored images half of the time, under the conditions of
            `augment`; takes twice the time and space of the features.
        crop: with `features`, train on random squares of this many cells per side.
        similar_lengths: batch images whose captions have similar lengths, for less padding. Random
            batches teach more if a caption's length depends on the content of its image.
        workers: processes that read images.
        limit: use only the first images of each split, up to this number; unlike the trainer's
            ``limit_train_batches`` it also limits which features are computed.
        min_captions: train only on photos with at least so many captions.
        equal_shares: draw each data set of a `Joined` reader equally often: an epoch repeats the
            photos of smaller ones, those with `min_captions`.
        train_split: the split to train on.
        val_split: the split to validate on.
        seed: of the order of the images and of the augmentation.
        max_megapixels: larger photos are rejected; at most 178.
        tokenizer: ptb, which the scores use; NLTK's treebank, wordpunct or tweet; or, for scripts
            without spaces, characters, japanese (extra ja), chinese (extra zh) or thai (extra th),
            which the scores use too.
        words: the first words of the vocabulary, even if they are rare; those of `model.initial` if
            its tokenizer is the same and `keep_words` is on.
        keep_words: whether a training from `model.initial` keeps its words; false for captions in
            another language.
        leave_out: paths of photos to skip, such as damaged ones.

    Raises:
        InputError: `features`, `augment`, `mirror` and `crop` exclude each other, or `equal_shares`
            is on for one data set.
    """

    reader: Reader
    size: int = 224
    fit: Fit = "crop"
    batch_size: int = 32
    captions_per_image: int = 5
    min_count: int = 5
    max_tokens: int = 1000
    augment: bool = False
    features: str | None = None
    mirror: bool = False
    crop: int | None = None
    similar_lengths: bool = True
    workers: int = 1
    limit: int | None = None
    min_captions: int = 1
    equal_shares: bool = False
    train_split: str = "train"
    val_split: str = "val"
    seed: int = 0
    max_megapixels: float = MEGAPIXELS
    tokenizer: TokenizerName = "ptb"
    words: Sequence[str] = ()
    keep_words: bool = True
    leave_out: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__init__()
        if self.features and self.augment:
            raise InputError(
                "data.features are computed once, but data.augment changes images every epoch; set "
                "one of them; data.mirror works with features"
            )
        if (self.mirror or self.crop) and not self.features:
            raise InputError(
                "data.mirror and data.crop are for features computed once; give data.features, or "
                "set data.augment, which mirrors and crops images"
            )
        if self.equal_shares and not isinstance(self.reader, Joined):
            raise InputError(
                "data.equal_shares: there is one data set; set it to false, or join several by "
                "captioning.data.readers.Joined"
            )
        self.preprocessing = Preprocessing(self.size, self.fit)
        self.preprocessing.max_pixels = int(self.max_megapixels * 1e6)
        self._cache: FeatureCache | None = None
        self._mirrored: FeatureCache | None = None
        self._epochs = self._batches = 0

    @cached_property
    @stage("reading the captions")
    def data_set(self) -> DataSet:
        """What the reader has read, once."""
        data_set = self.reader.read()
        data_set.say_problems(self.train_split, self.val_split)
        return data_set

    @cached_property
    def train_records(self) -> list[Record]:
        records = self._records(self.train_split, self.min_captions)
        if not records:
            raise InputError(
                f"no photo of split {self.train_split!r} has {self.min_captions} captions; lower "
                "data.min_captions"
            )
        return records

    @cached_property
    def val_records(self) -> list[Record]:
        return self._records(self.val_split)

    @cached_property
    def may_mirror(self) -> bool:
        """Whether the captions are English, so that `mentions_side` works."""
        captions = [caption for record in self.train_records for caption in record.captions]
        sample = captions[:: math.ceil(len(captions) / LANGUAGE_SAMPLE)]
        has_english_captions = is_english(chain.from_iterable(map(tokenize, sample)))
        if not has_english_captions and is_first_process():
            say(
                "photos are not mirrored: the captions do not look English, so those that say left "
                "or right are not known"
            )
        return has_english_captions

    def _records(self, split: str, min_captions: int = 1) -> list[Record]:
        excluded_photos = set(map(Path, self.leave_out))
        records = []
        for record in self.data_set.records(split):
            if record.image not in excluded_photos and len(record.captions) >= min_captions:
                records.append(record)
        return records[: self.limit]

    @cached_property
    @stage("building the vocabulary")
    def vocabulary(self) -> Vocabulary:
        """The words of the training captions."""
        captions = (caption for record in self.train_records for caption in record.captions)
        vocabulary = Vocabulary.build(
            captions, self.min_count, name=self.tokenizer, first_words=self.words
        )
        if not vocabulary.words:
            raise InputError(
                f"no word occurs {self.min_count} times in the captions of split "
                f"{self.train_split!r}; lower data.min_count"
            )
        return vocabulary

    def keep_features(
        self,
        encoder: Module | None,
        faster: Callable[[Any], Callable[[Tensor], Tensor]] | None = None,
    ) -> None:
        """Compute or open the features, if `features` is set.

        Args:
            encoder: the frozen stages; None if all stages are trained.
            faster: maps the encoder to an equal but faster function.
        """
        if not self.features or self._cache is not None:
            return
        if encoder is None:
            raise InputError(
                "data.features: all of the encoder is trained; set data.features to null or "
                "model.encoder.init_args.trainable_stages to a smaller number"
            )
        hint, trainer = "", self.trainer
        if self.limit is None and trainer is not None and trainer.training:
            batches = trainer.limit_train_batches
            if isinstance(batches, int) or batches < 1:  # a number, or a share
                hint = "for fewer give --data.limit N"
        open_cache = partial(feature_cache, encoder=encoder, faster=faster, hint=hint)
        images = [record.image for record in (*self.train_records, *self.val_records)]
        self._cache = open_cache(self.features, preprocessing=self.preprocessing, images=images)
        cells = len(self._cache[images[0]])
        side = math.isqrt(cells)
        if self.crop and (self.crop > side or side**2 != cells):
            raise InputError(
                f"data.crop: the features have {side} rows of {cells // side} cells; "
                f"give at most {side}, or null where the numbers differ"
            )
        images = [record.image for record in self.train_records if not mentions_side(record)]
        if self.mirror and images and self.may_mirror:
            mirrored = MirroredPreprocessing(self.preprocessing.size, self.preprocessing.fit)
            mirrored.max_pixels = self.preprocessing.max_pixels
            folder, name = f"{self.features}-mirrored", "mirrored features"
            self._mirrored = open_cache(folder, preprocessing=mirrored, images=images, name=name)

    def state_dict(self) -> dict[str, int]:
        """The position of the training: finished epochs, and batches of an unfinished one."""
        assert self.trainer is not None
        epochs: Any = self.trainer.fit_loop.epoch_progress.current
        batches: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        is_between_epochs = epochs.processed == epochs.ready
        processed_batches = 0 if is_between_epochs else batches.processed
        return {"epochs": epochs.processed, "batches": processed_batches}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._epochs, self._batches = state_dict["epochs"], state_dict["batches"]

    def train_dataloader(self) -> DataLoader[Any]:
        assert self.trainer is not None
        records = self.train_records
        if self.equal_shares and isinstance(self.reader, Joined):
            records = self.reader.equal_shares(records)
        # Counting spaces is close enough for sorting and a hundred times faster than tokenizing.
        lengths = [
            min(max(len(caption.split()) for caption in record.captions), self.max_tokens)
            for record in records
        ]
        sampler = SeededSampler(
            lengths if self.similar_lengths else [0] * len(lengths),
            self.batch_size,
            processes=self.trainer.world_size,
            process=self.trainer.global_rank,
            seed=self.seed,
            first_epoch=self._epochs,
            first_index=self._batches * self.batch_size,
        )
        augmentation = {"augment": self.augment, "mirrored": self._mirrored, "crop": self.crop}
        if self.augment:
            augmentation["may_mirror"] = self.may_mirror
        return self._loader(records, sampler, **augmentation)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.val_records)

    def _loader(
        self, records: list[Record], sampler: SeededSampler | None = None, **options: Any
    ) -> DataLoader[Any]:
        dataset = CaptionDataset(
            records,
            self.vocabulary,
            self.preprocessing,
            self.captions_per_image,
            self.max_tokens,
            features=self._cache,
            **options,
        )
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        # Reading the cache costs less than a worker, but a GPU would wait for it.
        workers = self.workers if on_gpu or not self._cache else 0
        if workers and SHARED_MEMORY.exists():
            feature_bytes = self._cache and self._cache[self.train_records[0].image].nbytes
            batch_bytes = self.batch_size * (feature_bytes or 3 * self.size**2)
            processes = self.trainer.world_size if self.trainer is not None else 1
            free_bytes = shutil.disk_usage(SHARED_MEMORY).free // processes
            # A worker has two batches ready, and waits for ever if they do not fit.
            max_workers = max(0, free_bytes // batch_bytes // 2 - 1)
            if max_workers < workers:
                if is_first_process():
                    say(
                        f"{SHARED_MEMORY} is small: {max_workers} processes read images, "
                        f"not {workers}"
                    )
                workers = max_workers
        return DataLoader(
            dataset,
            self.batch_size,
            sampler=sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=collate,
            worker_init_fn=_lower_priority,
            pin_memory=on_gpu,
        )


def _lower_priority(worker: int) -> None:
    # The threads of a step wait for each other, so a worker on the core of one thread delays all of
    # them. On two cores a lower priority makes training a third faster.
    if sys.platform != "win32":
        os.nice(10)
