"""The data of a training: which records, how they are prepared, in which batches."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from captioning.data.dataset import (
    Batch,
    CaptionDataset,
    SeededSampler,
    collate,
    lower_priority,
    sided,
)
from captioning.data.extraction import feature_cache
from captioning.data.feature_cache import ConstantEncoder, FeatureCache
from captioning.data.images import MEGAPIXELS, PhotoMegapixels, pixels_of
from captioning.data.preprocessing import MirroredPreprocessing, Preprocessing
from captioning.data.readers import Reader
from captioning.data.records import Record
from captioning.data.tokens import TokenizerName
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.numbers import (
    BatchSize,
    CaptionsPerImage,
    Checked,
    Count,
    ImageSize,
    PositiveCount,
    Seed,
    TokensPerCaption,
    Workers,
)
from captioning.progress_bar import stage


class CaptionData(Checked, pl.LightningDataModule):
    """Training and validation batches of a data set, and the vocabulary of its training captions.

    Args:
        reader: the data set.
        size: side of the square images in pixels.
        batch_size: B, images per step.
        captions_per_image: N, the most captions of one image in a step.
        min_count: words that occur less often in the training captions become unknown.
        max_tokens: the most tokens of a training caption, including EOS; longer ones are cut.
        augment: random crops while training, and mirroring if no caption says left or right.
        features: folder of the features that the encoder's frozen stages compute. The first
            training, or `captioning features`, writes them and later trainings read them; null
            encodes the images in every epoch.
        mirror: with `features`, train on mirrored images half of the time if no caption says left
            or right; their features double time and space.
        crop: with `features`, train on random squares of this many cells per side; null trains on
            all cells. Cells are those of the last frozen stage.
        similar_lengths: batch images whose captions have similar lengths, for less padding;
            otherwise batches are random. If a caption's length depends on the content of the image,
            random batches teach more.
        workers: processes that read images.
        limit: use only the first images of each split, up to this number; null uses all.
        train_split: the split to train on.
        val_split: the split to validate on.
        seed: of the order of the images and of the augmentation.
        max_megapixels: larger photos are refused; at most 178.
        tokenizer: splits captions into the words that the model learns: ptb, which the scores
            use, or NLTK's treebank, wordpunct or tweet; see `captioning.data.tokens`.

    Raises:
        InputError: a number is out of its range, a split is missing or empty, `features` is
            given with `augment`, or `mirror` or `crop` without `features`.

    Attributes:
        tells_seen: whether training batches include the part of its photo that each image shows;
            set by the training if the objective needs it.
    """

    tells_seen = False

    def __init__(
        self,
        reader: Reader,
        size: ImageSize = 224,
        batch_size: BatchSize = 32,
        captions_per_image: CaptionsPerImage = 5,
        min_count: Count = 5,
        max_tokens: TokensPerCaption = 50,
        augment: bool = False,
        features: str | None = None,
        mirror: bool = False,
        crop: PositiveCount | None = None,
        similar_lengths: bool = True,
        workers: Workers = 1,
        limit: PositiveCount | None = None,
        train_split: str = "train",
        val_split: str = "val",
        seed: Seed = 0,
        max_megapixels: PhotoMegapixels = MEGAPIXELS,
        tokenizer: TokenizerName = "ptb",
    ) -> None:
        super().__init__()
        if features and augment:
            raise InputError(
                "features are computed once per image, but augment changes images every epoch; "
                "set either data.features or data.augment; data.mirror works with features"
            )
        for name, is_given in (("mirror", mirror), ("crop", crop)):
            if is_given and not features:
                raise InputError(
                    f"data.{name} is for features computed once; give data.features, or set "
                    "data.augment, which mirrors and crops images"
                )
        self.reader = reader
        self.preprocessing = Preprocessing(size)
        self.preprocessing.max_pixels = pixels_of(max_megapixels)
        self.batch_size = batch_size
        self.captions_per_image = captions_per_image
        self.min_count = min_count
        self.max_tokens = max_tokens
        self.augment = augment
        self.features = features
        self.mirror = mirror
        self.crop = crop
        self.similar_lengths = similar_lengths
        self.workers = workers
        self.limit = limit
        self.train_split = train_split
        self.val_split = val_split
        self.seed = seed
        self.tokenizer: TokenizerName = tokenizer
        self._cache: FeatureCache | None = None
        self._mirrored: FeatureCache | None = None
        self._epochs = self._batches = 0

    @cached_property
    def train_records(self) -> list[Record]:
        """The records to train on."""
        return self._records(self.train_split)

    @cached_property
    def val_records(self) -> list[Record]:
        """The records to validate on."""
        return self._records(self.val_split)

    @cached_property
    @stage("building the vocabulary")
    def vocabulary(self) -> Vocabulary:
        """The words of the training captions."""
        captions = (caption for record in self.train_records for caption in record.captions)
        vocabulary = Vocabulary.build(captions, self.min_count, self.tokenizer)
        if not vocabulary.words:
            raise InputError(
                f"no word occurs {self.min_count} times in the captions of split "
                f"{self.train_split!r}; lower data.min_count"
            )
        return vocabulary

    def keep_features(
        self,
        encoder: ConstantEncoder | None,
        faster: Callable[[ConstantEncoder], ConstantEncoder] | None = None,
    ) -> None:
        """Compute or open the features, if `features` is set.

        Args:
            encoder: the part of the encoder that training never changes; None if it changes all.
            faster: returns an encoder with the same output in less time.

        Raises:
            InputError: the whole encoder is trained, the folder holds something else, or a photo
                cannot be read.
        """
        if not self.features or self._cache is not None:
            return
        if encoder is None:
            raise InputError(
                "features are computed once, but all of the encoder is trained; set data.features "
                "to null or model.encoder.init_args.trainable_stages to a smaller number"
            )
        images = [record.image for record in (*self.train_records, *self.val_records)]
        self._cache = feature_cache(
            self.features, encoder, self.preprocessing, images, workers=self.workers, faster=faster
        )
        self._check_crop(self._cache.cells)
        images = [record.image for record in self.train_records if not sided(record)]
        if self.mirror and images:
            mirrored = MirroredPreprocessing(self.preprocessing.size)
            mirrored.max_pixels = self.preprocessing.max_pixels
            self._mirrored = feature_cache(
                f"{self.features}-mirrored",
                encoder,
                mirrored,
                images,
                workers=self.workers,
                name="mirrored features",
                faster=faster,
            )

    def _check_crop(self, cells: int) -> None:
        side = math.isqrt(cells)
        if self.crop and side**2 != cells:
            raise InputError("data.crop cuts squares of square feature maps; set it to null")
        if self.crop and self.crop > side:
            raise InputError(
                f"data.crop: the features have {side} rows of {side} cells; give at most {side}"
            )

    def state_dict(self) -> dict[str, int]:
        """The position of the training: finished epochs, and batches of an unfinished one."""
        assert self.trainer is not None
        epochs: Any = self.trainer.fit_loop.epoch_progress.current
        batches: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        between = epochs.processed == epochs.ready
        return {"epochs": epochs.processed, "batches": 0 if between else batches.processed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue after the epochs and batches of the checkpoint."""
        self._epochs, self._batches = state_dict["epochs"], state_dict["batches"]

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in a new order every epoch."""
        assert self.trainer is not None
        dataset = self._dataset(self.train_records, self.augment, self._mirrored)
        dataset.tells_seen = self.tells_seen
        dataset.crop = self.crop
        lengths = dataset.lengths if self.similar_lengths else [0] * len(dataset)  # all alike
        sampler = SeededSampler(
            lengths,
            self.batch_size,
            self.trainer.world_size,
            self.trainer.global_rank,
            seed=self.seed,
            first_epoch=self._epochs,
            first_index=self._batches * self.batch_size,
        )
        return self._loader(dataset, sampler=sampler)

    def val_dataloader(self) -> DataLoader[Any]:
        """Batches in the order of the records."""
        return self._loader(self._dataset(self.val_records, augment=False))

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        """Move the tensors; records stay as they are."""
        return batch.to(device)

    def _records(self, split: str) -> list[Record]:
        records = self.reader.read(split)[: self.limit]
        if not records:
            raise InputError(f"split {split!r} has no image with a caption; check the data set")
        return records

    def _dataset(
        self, records: list[Record], augment: bool, mirrored: FeatureCache | None = None
    ) -> CaptionDataset:
        return CaptionDataset(
            records,
            self.vocabulary,
            self.preprocessing,
            self.captions_per_image,
            self.max_tokens,
            augment,
            self._cache,
            mirrored,
        )

    def _loader(self, dataset: CaptionDataset, **options: Any) -> DataLoader[Any]:
        workers = 0 if self._cache else self.workers  # reading the cache costs less than a worker
        return DataLoader(
            dataset,
            self.batch_size,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=collate,
            worker_init_fn=lower_priority,
            pin_memory=self.trainer is not None
            and self.trainer.num_devices > 0
            and self.trainer.strategy.root_device.type == "cuda",
            **options,
        )
