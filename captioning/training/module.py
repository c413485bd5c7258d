"""One training step and one validation, as Lightning wants them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.utilities.enums import GradClipAlgorithmType
from torch import Tensor, nn

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.errors import InputError
from captioning.metrics.report import score
from captioning.models import Captioner, CNNEncoder, Decoder, Search
from captioning.training.losses import caption_loss


class CaptioningModule(pl.LightningModule):
    """Trains a captioner by cross-entropy with the doubly stochastic penalty.

    Args:
        encoder: turns images into annotation vectors.
        decoder: the kind of decoder and its arguments, but for the two that the data decide:
            the width of the annotation vectors and the size of the vocabulary.
        vocabulary: the words; linked from the data.
        preprocessing: how a photo becomes an image; linked from the data.
        search: how words are chosen in validation and, later, for new photos.
        learning_rate: highest learning rate of the decoder.
        encoder_learning_rate: highest learning rate of the encoder's trained stages.
        weight_decay: of AdamW.
        warmup: share of the training in which the learning rate rises, before its cosine decay.
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of the paper's eq. 14.
    """

    def __init__(
        self,
        encoder: CNNEncoder,
        decoder: Callable[[int, int], Decoder],
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search,
        learning_rate: float = 8e-4,
        encoder_learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        label_smoothing: float = 0.1,
        attention_penalty: float = 1.0,
    ) -> None:
        super().__init__()
        self.captioner = Captioner(
            encoder,
            decoder(encoder.annotation_dim, len(vocabulary)),
            vocabulary,
            preprocessing,
            search,
        )
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.label_smoothing = label_smoothing
        self.attention_penalty = attention_penalty
        self.captions: dict[int | str, str] = {}
        self.references: dict[int | str, tuple[str, ...]] = {}

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        """The loss of a batch of images with all their captions."""
        annotations = self.captioner.encode(batch.images)
        cross_entropy, weights = self.captioner.decoder.cross_entropy(
            annotations, batch.tokens, self.label_smoothing
        )
        targets = batch.tokens[..., 1:]
        words = self._mean_over_processes((targets != PAD).sum())
        loss = caption_loss(cross_entropy, weights, targets, self.attention_penalty, words)
        self.log("train/loss", loss, prog_bar=True, batch_size=1, sync_dist=True)
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
        self.captions.clear()
        self.references.clear()

    def validation_step(self, batch: Batch, index: int) -> None:
        """Caption every image once, with nothing given but the image."""
        decoded = self.captioner.decode(self.captioner.encode(batch.images))
        for record, caption in zip(batch.records, self.captioner.words(decoded), strict=True):
            self.captions[record.image_id] = caption
            self.references[record.image_id] = record.captions

    def on_validation_epoch_end(self) -> None:
        """Score the captions, those of all processes together."""
        if self.trainer.world_size > 1:
            parts: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(parts, (self.captions, self.references))
            for captions, references in parts:
                self.captions |= captions
                self.references |= references
        for name, value in score(self.captions, self.references).items():
            self.log(f"val/{name}", value, prog_bar=name == "BLEU-4", sync_dist=True)

    def configure_optimizers(self) -> Any:
        """AdamW, one cycle of the learning rate over the whole training.

        Raises:
            InputError: the training has no end.
        """
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise InputError(
                "the learning rate falls until the training ends; give trainer.max_epochs or "
                "trainer.max_steps"
            )
        groups: list[tuple[nn.Module, float]] = [
            (self.captioner.decoder, self.learning_rate),
            (self.captioner.encoder, self.encoder_learning_rate),
        ]
        parameters: list[dict[str, Any]] = [
            {"params": trained, "lr": rate}
            for part, rate in groups
            if (trained := [p for p in part.parameters() if p.requires_grad])
        ]
        # In one pass over the parameters, unless gradients are scaled, which clipping must undo.
        fused = self.trainer.precision != "16-mixed"
        optimizer = torch.optim.AdamW(parameters, weight_decay=self.weight_decay, fused=fused)
        # Not torch's OneCycleLR: it breaks off where a training resumes with more epochs.
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, partial(one_cycle, steps=int(steps), warmup=self.warmup)
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
        """Keep what `captioning.load` needs to build the captioner without data."""
        checkpoint["captioner"] = self.captioner.config


def one_cycle(step: int, steps: int, warmup: float) -> float:
    """The learning rate over its highest value: from 1/25 up to 1 and down to nearly 0.

    Both ways follow a cosine (Smith and Topin 2018, in the form that fast.ai gave it).

    Args:
        step: counted from 0; beyond the last one the rate stays.
        steps: of the whole training.
        warmup: share of the steps in which the rate rises.
    """
    low, high, end = 1 / 25, 1.0, 1 / 25e4
    top, last = warmup * steps - 1, steps - 1
    if step < top:
        first, second, way = low, high, step / top
    else:
        first, second, way = high, end, (min(step, last) - top) / max(last - top, 1)
    return second + (first - second) * (1 + math.cos(math.pi * way)) / 2
