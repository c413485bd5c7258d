"""A batch of photos that is encoded once and captioned once, for all that is told of it.

Shapes: B images, N captions per image, L regions, D annotation width, A adapted width, T words, V
vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.preprocessing import PhotoSource, View
from captioning.data.vocabulary import BOS, PAD
from captioning.device import on_device
from captioning.errors import InputError
from captioning.maps import CaptionedBatch
from captioning.models.decoder import Memory
from captioning.search import Decoded, Search
from captioning.search.search import generable_log_probs

if TYPE_CHECKING:
    from captioning.captioner.captioner import Captioner


class PhotoView(NamedTuple):
    """A photo of a stream: its place in it, from 0, and what the model sees of it.

    `photo` is as it was given; pixels and the bytes of a file have become an image.
    """

    number: int
    photo: PhotoSource
    view: View


@dataclass(frozen=True)
class EncodedBatch:
    """Photos as the model knows them; captions, words of others and maps are made from it.

    Attributes:
        images: what the encoder gets: pixels, or cached features.
        annotations: the encoder's annotation vectors.
        adapted: the adapter's, which the decoder attends over.
    """

    images: Tensor
    annotations: Float[Tensor, "B L D"]
    adapted: Float[Tensor, "B L A"]

    def captioned(
        self,
        captioner: "Captioner",
        tokens: Int[Tensor, "B N T"],
        weights: Float[Tensor, "B N T L"] | None = None,
    ) -> CaptionedBatch:
        """The images with captions, for maps; `weights` if the attention is known already."""
        read = F.pad(tokens, (1, 0), value=BOS)
        adapted = self.adapted.to(self.annotations.dtype)
        return CaptionedBatch(
            captioner.model, self.images, self.annotations, read, adapted, weights
        )


@dataclass(frozen=True)
class DecodedBatch(EncodedBatch):
    """Captions of photos, with what was computed for them.

    Attributes:
        memory: what the decoder computes once per image.
        captions: tokens, their log probabilities, attention weights and scores, the best first.
        logits: before each token; None unless asked for.
    """

    memory: Memory
    captions: Decoded
    logits: Float[Tensor, "B N T V"] | None


def encode_batch(captioner: "Captioner", views: Sequence[PhotoView]) -> EncodedBatch:
    """The photos' annotation vectors, on the captioner's device."""
    images = on_device([view.view.pixels for view in views], captioner.device)
    annotations = captioner.encode(images)
    return EncodedBatch(images, annotations, captioner.adapt(annotations))


def decode_batch(
    captioner: "Captioner",
    views: Sequence[PhotoView],
    search: Search | None = None,
    written: Int[Tensor, "B N T"] | None = None,
    logits: bool = False,
    most: int | None = None,
) -> DecodedBatch:
    """The captions of a batch of photos.

    Args:
        captioner: the model.
        views: the photos.
        search: how words are chosen; defaults to the captioner's search.
        written: captions to read, up to EOS and then PAD; none is searched then.
        logits: whether to compute logits, by one more pass over the captions.
        most: the most captions per photo; None for all that the search returns.

    Raises:
        InputError: the model's numbers overflow.
    """
    search = search or captioner.search
    encoded = encode_batch(captioner, views)
    memory = captioner.remember_adapted(encoded.adapted)
    scored: Tensor | None = None
    if written is None:
        of_images = search.for_images(view.view.pixels.numpy().tobytes() for view in views)
        captions = captioner.find_captions(memory, of_images)
    else:
        written = written.to(captioner.device)
        scored, weights = captioner.teacher_forcing(memory, written)
        log_probs = token_log_probs(scored, written)
        lengths = (written != PAD).sum(dim=2)
        scores = log_probs.sum(dim=2) / lengths**search.length_penalty
        captions = Decoded(written, log_probs, weights, scores)
    if captions.scores.isnan().any():
        raise InputError("the model's numbers overflow; use another checkpoint")
    captions = Decoded(*(part[:, :most] for part in captions))
    if logits and scored is None:
        scored, _ = captioner.teacher_forcing(memory, captions.tokens)
    return DecodedBatch(
        encoded.images, encoded.annotations, encoded.adapted, memory, captions, scored
    )


def token_log_probs(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"]
) -> Float[Tensor, "B N T"]:
    """The log probability of each token among the words that a search can generate; 0 at PAD."""
    log_probs = generable_log_probs(logits).gather(3, tokens[..., None]).squeeze(3)
    return log_probs.masked_fill(tokens == PAD, 0.0)
