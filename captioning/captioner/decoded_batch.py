"""Encoded and decoded batches of photos, from which captions, confidences and maps are made.

Shapes: B images, N captions per image, L regions, D annotation width, A adapted width, T words, V
vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.data.vocabulary import BOS, PAD
from captioning.device import on_device
from captioning.errors import InputError
from captioning.maps import CaptionedBatch
from captioning.models.decoder import Memory
from captioning.search import Decoded, Search
from captioning.search.search import token_log_probs


@dataclass(frozen=True)
class EncodedBatch:
    """Encoded photos.

    Attributes:
        images: the encoder's input: pixels, or cached features.
        annotations: the encoder's annotation vectors.
        adapted: the adapter's vectors, which the decoder attends over.
    """

    images: Tensor
    annotations: Float[Tensor, "B L D"]
    adapted: Float[Tensor, "B L A"]

    def captioned(
        self,
        network: InferenceNetwork,
        tokens: Int[Tensor, "B N T"],
        attention: Float[Tensor, "B N T L"] | None = None,
    ) -> CaptionedBatch:
        """Return the images with captions, for maps.

        Args:
            network: that encoded the images.
            tokens: the captions, without BOS.
            attention: the attention weights, if they have been computed.
        """
        tokens = F.pad(tokens, (1, 0), value=BOS)
        adapted = self.adapted.to(self.annotations.dtype)  # maps use no bfloat16
        return CaptionedBatch(
            network.model,
            self.images,
            self.annotations,
            adapted,
            tokens,
            attention,
            network.encode,
        )


@dataclass(frozen=True)
class DecodedBatch(EncodedBatch):
    """Encoded photos with their captions.

    Attributes:
        memory: what the decoder computes once per image.
        captions: tokens, their log probabilities, attention weights and scores, the best first.
        logits: the logits before each token; None unless requested.
    """

    memory: Memory
    captions: Decoded
    logits: Float[Tensor, "B N T V"] | None


def encode_batch(network: InferenceNetwork, photos: Sequence[StreamedPhoto]) -> EncodedBatch:
    """Encode photos, on the network's device."""
    images = on_device([photo.view.pixels for photo in photos], network.device)
    annotations = network.encode(images)
    return EncodedBatch(images, annotations, network.adapt(annotations))


def decode_batch(
    network: InferenceNetwork,
    photos: Sequence[StreamedPhoto],
    search: Search,
    tokens: Int[Tensor, "B N T"] | None = None,
    needs_logits: bool = False,
    most: int | None = None,
) -> DecodedBatch:
    """Caption a batch of photos, or read captions of them.

    Args:
        network: the model.
        photos: the photos.
        search: how words are chosen; made for the vocabulary by `Search.for_words`.
        tokens: captions to read instead of searching for some, up to EOS and then PAD.
        needs_logits: whether to return logits, which takes one more pass over captions that were
            found.
        most: the most captions per photo; None for all that the search returns.

    Raises:
        InputError: the model's numbers overflow.
    """
    encoded = encode_batch(network, photos)
    memory = network.remember(encoded.adapted)
    logits: Tensor | None = None
    if tokens is None:
        search = search.for_images(photo.view.pixels.numpy().tobytes() for photo in photos)
        captions = network.find_captions(memory, search)
    else:
        tokens = tokens.to(network.device)
        logits, weights = network.teacher_forcing(memory, tokens)
        log_probs = token_log_probs(logits, tokens)
        lengths = (tokens != PAD).sum(dim=2)
        scores = log_probs.sum(dim=2) / lengths**search.length_penalty
        captions = Decoded(tokens, log_probs, weights, scores)
    if captions.scores.isnan().any():
        raise InputError("the model's numbers overflow; use another checkpoint")
    captions = Decoded(*(tensor[:, :most] for tensor in captions))
    if needs_logits and logits is None:
        logits, _ = network.teacher_forcing(memory, captions.tokens)
    return DecodedBatch(
        encoded.images, encoded.annotations, encoded.adapted, memory, captions, logits
    )
