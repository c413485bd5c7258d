"""The Lightning module, with one training step and one validation, and its learning rates."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor, nn

from captioning import progress_bar
from captioning.captioner import Captioner, load
from captioning.captioner.checkpoint import CONFIG_KEY, REWARD_KEY
from captioning.data.data_module import CaptionData
from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Joined
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.kernels import encoding_for_training, fast_encoding, on_by_default
from captioning.metrics.validation_scores import ValidationScores
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.encoder import measured_offset
from captioning.search import Search
from captioning.training.initial import start_from
from captioning.training.objectives import CrossEntropy, Objective

CIDER_OF_SETS = "CIDEr of data sets"
"""Validation score of joined data sets: the geometric mean of their CIDEr."""


class Schedule(ABC):
    """How the learning rate changes, as a share of its highest value."""

    @abstractmethod
    def __call__(self, step: int, steps: int) -> float:
        """The share at a step, counted from 0, of a training of so many steps."""


@dataclass
class OneCycle(Schedule):
    """Rises from 1/25 to 1 and falls to nearly 0, both along a cosine (Smith and Topin 2018).

    Args:
        warmup: share of the training in which the learning rate rises.
    """

    warmup: float = 0.1

    def __call__(self, step: int, steps: int) -> float:
        top, last = self.warmup * steps - 1, steps - 1
        if step < top:
            begin, end, progress = 1 / 25, 1.0, step / top
        else:
            begin, end = 1.0, 1 / 25e4
            progress = (min(step, last) - top) / max(last - top, 1)
        return end + (begin - end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass
class InverseSquareRoot(Schedule):
    """Rises linearly, then falls with the root of the step (Vaswani et al. 2017, eq. 3).

    The highest value is the module's learning rate; the paper's is (width x warmup) ^ -0.5.

    Args:
        warmup_steps: number of steps in which the rate rises.
    """

    warmup_steps: int = 10_000

    def __call__(self, step: int, steps: int) -> float:
        number = step + 1
        return min(number / self.warmup_steps, (self.warmup_steps / number) ** 0.5)


class CaptioningModule(pl.LightningModule):
    """Trains a model.

    Args:
        encoder: turns images into annotation vectors.
        decoder: the decoder, except for the width of the annotation vectors and the vocabulary.
        vocabulary: the words; linked from the data.
        preprocessing: how a photo becomes an image; linked from the data.
        search: how words are chosen in validation and, later, for new photos.
        adapter: the adapter, except for the width of the encoder's annotation vectors; by default
            it changes nothing.
        default_map: the default map of a word, by its name in `captioning.maps`; None for the one
            that suits the decoder.
        objective: the loss of a step; by default `CrossEntropy`.
        initial: a model to start from, by its file or name; the vocabulary then begins with its
            words. By default a random start.
        learning_rate: highest learning rate of adapter and decoder.
        encoder_learning_rate: highest learning rate of the encoder's trained stages.
        weight_decay: of AdamW.
        warmup: share of the training in which the learning rate rises, before its cosine decay.
        schedule: how the learning rate changes, in place of `warmup` and the cosine.
        start: the captioner of `initial`; loaded if not given.

    Raises:
        InputError: the decoder has no such map, `initial` is a checkpoint of another model, or the
            objective cannot train the model.

    Attributes:
        captioner: captions with the trained model.
        kernels: whether to use the fast kernels; read when a fit begins.
        compile_after: number of first steps whose arithmetic is not compiled; -1 for all.
        validated_captions: the captions of this process in the present validation, as word ids by
            image id.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Callable[[int, int], Decoder],
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search,
        adapter: Callable[[int], Adapter] = Adapter,
        default_map: str | None = None,
        objective: Objective | None = None,
        initial: str | None = None,
        learning_rate: float = 8e-4,
        encoder_learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: Schedule | None = None,
        start: Captioner | None = None,
    ) -> None:
        super().__init__()
        encoder.grid(preprocessing.size, preprocessing.size)  # an error if the size is too small
        model_adapter = adapter(encoder.annotation_dim)
        model_decoder = decoder(model_adapter.output_dim, len(vocabulary))
        self.model = Model(encoder, model_adapter, model_decoder)
        self.captioner = Captioner(
            self.model, vocabulary, preprocessing, search, default_map, kernels=False
        )
        if initial is not None:
            start_from(start or load(initial, kernels=False), self.captioner, initial)
        self.kernels = on_by_default()
        self.compile_after = -1
        self.objective = objective or CrossEntropy()
        self.objective.check(self.model)
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule or OneCycle(warmup)
        self.scores = ValidationScores(vocabulary.tokenizer)
        self.validated_captions: dict[int | str, list[int]] = {}

    def setup(self, stage: str) -> None:
        data: CaptionData = self.trainer.datamodule  # type: ignore[attr-defined]
        if stage == "fit":
            with progress_bar.stage("preparing the objective"):
                self.objective.prepare(data.train_records, data.vocabulary, data.preprocessing)
        # Lightning moves the model only later, but extracting features is work for the device.
        device = self.trainer.strategy.root_device
        encoder = self.model.encoder.to(device)
        if data.features:
            data.keep_features(encoder.frozen_part, fast_encoding if self.kernels else None)
        self._encode_for_training: Callable[[Tensor], Tensor] = self.model.encode
        if self.kernels:
            self.captioner.network.kernels = True  # validation encodes by the captioner
            self._encode_for_training = encoding_for_training(self.captioner.network.accelerated)
        if stage == "fit" and data.size not in encoder.offsets:
            # Before a checkpoint is resumed, so that the resumed training repeats its steps.
            with progress_bar.stage("measuring where the encoder looks"):
                encoder.offsets[data.size] = measured_offset(encoder, data.size)

    def on_train_batch_start(self, *_: Any) -> None:
        """Let a step depend on its number alone, so that a resumed training repeats it exactly."""
        trainer: Any = self.trainer
        step = trainer.fit_loop.epoch_loop.total_batch_idx
        seed = trainer.datamodule.seed * 1_000_000_007  # of dropout and samples
        torch.manual_seed(seed + step * trainer.world_size + trainer.global_rank)
        if self.kernels:
            from captioning.kernels.compiled import compile_from_now

            # Replayed on a GPU, a step overwrites gradients that wait for the next batch.
            replays = self.device.type != "cpu" and trainer.accumulate_grad_batches > 1
            compile_from_now(0 <= self.compile_after <= trainer.global_step and not replays)

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        annotations = self._encode_for_training(batch.images)
        total, divisor, metrics = self.objective(
            self.captioner.network.accelerated, annotations, batch
        )
        # Gradients are averaged over processes. With losses per mean number of words, that average
        # is the gradient that one process would have had with all images.
        divisors: Any = self.all_gather(divisor)
        loss = total / divisors.float().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, logger=False, batch_size=1)
        self.log("train/loss", loss, batch_size=1, sync_dist=True)
        for name, metric in metrics.items():
            self.log(f"train/{name}", metric, batch_size=1, sync_dist=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        self.validated_captions = {}

    def validation_step(self, batch: Batch, index: int) -> None:
        annotations = self.captioner.network.encode(batch.images)
        tokens = self.captioner.find_captions(annotations).tokens[:, 0].tolist()
        image_ids = [record.image_id for record in batch.records]
        self.validated_captions.update(zip(image_ids, tokens, strict=True))
        self.scores.update(
            [self.captioner.vocabulary.text(row) for row in tokens],
            [record.captions for record in batch.records],
            image_ids,
        )

    @progress_bar.stage("scoring the captions")
    def on_validation_epoch_end(self) -> None:
        scores = self.scores.compute()
        reader = self.trainer.datamodule.reader  # type: ignore[attr-defined]
        if isinstance(reader, Joined):
            scores[CIDER_OF_SETS] = reader.mean_score(self.scores.by_image["CIDEr"])
        for name, value in scores.items():
            self.log(f"val/{name}", value, sync_dist=True)

    def configure_optimizers(self) -> Any:
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise InputError(
                "the learning rate falls until trainer.max_epochs or max_steps; give one"
            )
        groups: list[dict[str, Any]] = []
        decoder = nn.ModuleList([self.model.decoder, self.model.adapter])
        for part, rate in (
            (decoder, self.learning_rate),
            (self.model.encoder, self.encoder_learning_rate),
        ):
            parameters = [p for p in part.parameters() if p.requires_grad]
            if parameters:
                groups.append({"params": parameters, "lr": rate})
        # In one pass over the parameters, unless gradients are scaled, which clipping must undo.
        fused = self.trainer.precision != "16-mixed"
        optimizer: Any = torch.optim.AdamW(groups, weight_decay=self.weight_decay, fused=fused)
        optimizer._step_supports_amp_scaling = False  # or else Lightning refuses to clip gradients
        # Not torch's OneCycleLR: it breaks off where a training resumes with more epochs.
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.schedule(step, int(steps))
        )
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        config = self.captioner.config
        if self.model.encoder.frozen_part is not self.model.encoder:
            config.pop("offset", None)  # training moves it
        if self.objective.signature:
            config[REWARD_KEY] = self.objective.signature
        checkpoint[CONFIG_KEY] = config
