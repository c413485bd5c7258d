"""One training step and one validation, as Lightning wants them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.utilities.enums import GradClipAlgorithmType
from torch import Tensor, nn

from captioning.captioner import Captioner, load
from captioning.captioner.checkpoint import captioners_tensors
from captioning.data.data_module import CaptionData
from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.integrity import checksum, checksum_of
from captioning.kernels.depthwise import keep_depthwise_precise
from captioning.maps import ATTENTION
from captioning.metrics.caption_metric import validation_metrics
from captioning.models import Decoder, Encoder
from captioning.numbers import Checked, LearningRate, Share, WeightDecay
from captioning.progress_bar import stage
from captioning.search import Search
from captioning.training.learning_rate import OneCycle, Schedule
from captioning.training.objectives import CrossEntropy, Objective


class CaptioningModule(Checked, pl.LightningModule):
    """Trains a captioner.

    Args:
        encoder: turns images into annotation vectors.
        decoder: the kind of decoder and its arguments, except the two that the data decide:
            the width of the annotation vectors and the size of the vocabulary.
        vocabulary: the words; linked from the data.
        preprocessing: how a photo becomes an image; linked from the data.
        search: how words are chosen in validation and, later, for new photos.
        shown_map: the map of a word that pictures and measures of this model take, by its name in
            `captioning.maps`, unless another one is asked for.
        objective: what a step minimises; the paper's cross-entropy and penalty if none.
        initial: a checkpoint of the same model whose parameters to start from; random ones if
            none.
        learning_rate: highest learning rate of the decoder.
        encoder_learning_rate: highest learning rate of the encoder's trained stages.
        weight_decay: of AdamW.
        warmup: share of the training in which the learning rate rises, before its cosine decay.
        schedule: how the learning rate changes, in place of `warmup` and the cosine.

    Raises:
        InputError: a number is out of its range, the decoder has no such map, or `initial` holds
            another model.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Callable[[int, int], Decoder],
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search,
        objective: Objective | None = None,
        initial: str | None = None,
        learning_rate: LearningRate = 8e-4,
        encoder_learning_rate: LearningRate = 1e-4,
        weight_decay: WeightDecay = 0.01,
        warmup: Share = 0.1,
        schedule: Schedule | None = None,
        shown_map: str = ATTENTION,
    ) -> None:
        super().__init__()
        encoder.grid(preprocessing.size, preprocessing.size)  # an error where the size is too small
        self.captioner = Captioner(
            encoder,
            decoder(encoder.annotation_dim, len(vocabulary)),
            vocabulary,
            preprocessing,
            search,
            shown_map,
        )
        if initial is not None:
            start_from(initial, self.captioner)
        self.objective = objective or CrossEntropy()
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule or OneCycle(warmup)
        self.scores = validation_metrics()

    def setup(self, stage: str) -> None:
        """Tell the data what is wanted of them: what the encoder's constant part gives, say.

        Lightning moves the model to its device only later, but this is the work for a GPU.
        """
        data: CaptionData = self.trainer.datamodule  # type: ignore[attr-defined]
        data.tells_seen = self.objective.needs_seen
        encoder = self.captioner.encoder.to(self.trainer.strategy.root_device)
        data.keep_features(encoder.constant)
        if self.captioner.uses_kernels:
            keep_depthwise_precise(encoder)

    @stage("preparing the objective")
    def on_fit_start(self) -> None:
        """Show the objective the training captions."""
        data: CaptionData = self.trainer.datamodule  # type: ignore[attr-defined]
        self.objective.prepare(data.train_records)

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        """The loss of a batch of images with all their captions."""
        annotations = self.captioner.encode(batch.images)
        total, divisor, figures = self.objective(self.captioner, annotations, batch)
        loss = total / self._mean_over_processes(divisor)
        self.log("train/loss", loss, prog_bar=True, batch_size=1, sync_dist=True)
        for name, figure in figures.items():
            self.log(f"train/{name}", figure, batch_size=1, sync_dist=True)
        return loss

    def _mean_over_processes(self, number: Tensor) -> Float[Tensor, ""]:
        """The mean of a number that differs between processes.

        Gradients are averaged over the processes. With each one's loss per mean number of words,
        that average is the gradient that one process would have had with all their images.
        """
        numbers: Any = self.all_gather(number)
        return numbers.float().mean()

    def on_validation_epoch_start(self) -> None:
        """Forget the captions of the last validation."""
        self.scores.reset()

    def validation_step(self, batch: Batch, index: int) -> None:
        """Caption every image once, with nothing given but the image."""
        decoded = self.captioner.decode(self.captioner.encode(batch.images))
        self.scores.update(
            self.captioner.words(decoded),
            [record.captions for record in batch.records],
            [record.image_id for record in batch.records],
        )

    @stage("scoring the captions")
    def on_validation_epoch_end(self) -> None:
        """Score the captions of all processes."""
        for name, value in self.scores.compute().items():
            self.log(f"val/{name}", value.item(), prog_bar=name == "BLEU-4", sync_dist=True)

    def trained_parameters(self) -> list[tuple[list[nn.Parameter], float]]:
        """The optimizer's groups: decoder and encoder, each with its highest learning rate."""
        groups: list[tuple[nn.Module, float]] = [
            (self.captioner.decoder, self.learning_rate),
            (self.captioner.encoder, self.encoder_learning_rate),
        ]
        return [
            (trained, rate)
            for part, rate in groups
            if (trained := [p for p in part.parameters() if p.requires_grad])
        ]

    def configure_optimizers(self) -> Any:
        """AdamW, and a learning rate that follows the schedule step by step.

        Raises:
            InputError: the training has no end.
        """
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise InputError(
                "the learning rate falls until the training ends; give trainer.max_epochs or "
                "trainer.max_steps"
            )
        parameters: list[dict[str, Any]] = [
            {"params": trained, "lr": rate} for trained, rate in self.trained_parameters()
        ]
        # In one pass over the parameters, unless gradients are scaled, which clipping must undo.
        fused = self.trainer.precision != "16-mixed"
        optimizer = torch.optim.AdamW(parameters, weight_decay=self.weight_decay, fused=fused)
        # Not torch's OneCycleLR: it breaks off where a training resumes with more epochs.
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, partial(self.schedule, steps=int(steps))
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as the trainer says, though the optimizer is fused.

        Lightning refuses that under autocast, as fused optimizers unscale gradients themselves;
        where ours is fused, gradients are not scaled.
        """
        Precision.clip_gradients(
            self.trainer.precision_plugin,
            optimizer,
            gradient_clip_val or 0.0,
            GradClipAlgorithmType(gradient_clip_algorithm or "norm"),
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what `captioning.load` builds the captioner from without data, with a checksum."""
        checkpoint["captioner"] = self.captioner.config
        tensors = captioners_tensors(checkpoint)
        checkpoint["checksum"] = checksum(checkpoint["captioner"], tensors)
        checkpoint["progress_checksum"] = progress_checksum(checkpoint)


PROGRESS: dict[str, type] = {
    "pytorch-lightning_version": str,
    "epoch": int,
    "global_step": int,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "CaptionData": dict,
}
"""What Lightning and the data module restore of a checkpoint, beside the model."""


def progress_checksum(checkpoint: dict[str, Any]) -> int:
    """The checksum of what a training resumes from, beside the model."""
    return checksum_of({name: checkpoint.get(name) for name in PROGRESS})


def start_from(checkpoint: str, captioner: Captioner) -> None:
    """Give a captioner the parameters of a checkpoint of the same model.

    Args:
        checkpoint: the file.
        captioner: gets the parameters.

    Raises:
        InputError: the file is no checkpoint, or its model has other words or other sizes.
    """
    initial = load(checkpoint)
    if initial.vocabulary != captioner.vocabulary:
        raise InputError(
            f"{checkpoint}: knows {len(initial.vocabulary.words)} words, which are not the "
            f"{len(captioner.vocabulary.words)} of these data; train on the data it was trained on"
        )
    for part in ("encoder", "decoder"):
        theirs, ours = (getattr(model, part).state_dict() for model in (initial, captioner))
        shapes = [{(name, value.shape) for name, value in s.items()} for s in (theirs, ours)]
        if shapes[0] != shapes[1]:
            name, _ = min(shapes[0] ^ shapes[1])
            raise InputError(
                f"{checkpoint}: its {part} differs in {name}; give model.{part} as it was trained"
            )
        getattr(captioner, part).load_state_dict(theirs)
