"""Photos in, captions out.

Shapes: B images, N captions per image, T words, L regions, D annotation width,
V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.captioner.calibration import Calibration
from captioning.captioner.caption import Caption, Captions
from captioning.captioner.configuration import build_parts, captioner_config
from captioning.captioner.description import caption_batch
from captioning.captioner.photo_stream import (
    BATCH_SIZE,
    StreamedPhoto,
    photo_batches,
    read_streamed_photo,
)
from captioning.captioner.user_words import constrained_search, text_tokens
from captioning.data.preprocessing import Photo, Preprocessing, is_one_photo
from captioning.data.vocabulary import BOS, Vocabulary
from captioning.device import multiplies_bfloat16_fast
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.kernels import accelerate, in_parts, on_by_default
from captioning.maps import default_map, resolve_map_names
from captioning.models import Model
from captioning.models.decoder import Memory
from captioning.search import BeamSearch, Decoded, Search

Result = TypeVar("Result")


class Captioner:
    """A model with its vocabulary, preprocessing and search: photos in, captions out.

    Args:
        model: encoder, adapter and decoder.
        vocabulary: the words.
        preprocessing: how a photo becomes an image; the same in training and afterwards.
        search: the default search; beam search if None.
        map_name: the default map of a word (`captioning.maps`); defaults to the one that suits the
            decoder.
        kernels: whether to use the fast kernels (`captioning.kernels`); defaults to true, unless
            the environment sets ``CAPTIONING_KERNELS=off``.

    Raises:
        InputError: the vocabulary does not fit the decoder, or the model has no such map.

    Attributes:
        calibration: makes the probabilities of words calibrated, and gives captions a confidence;
            None for a model that has not been calibrated (`captioning calibrate`).
        bfloat16: whether to compute in bfloat16, which is faster on some processors. On others,
            and on a GPU, annotation vectors are computed in single precision.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search | None = None,
        map_name: str | None = None,
        kernels: bool | None = None,
    ) -> None:
        if model.decoder.vocab_size != len(vocabulary):
            raise InputError(
                f"the decoder has {model.decoder.vocab_size} words, the vocabulary "
                f"{len(vocabulary)}"
            )
        [self.default_map] = resolve_map_names([map_name or default_map(model)], model)
        self.model = model
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.search = search or BeamSearch()
        self.calibration: Calibration | None = None
        self.kernels = on_by_default() if kernels is None else kernels
        self.bfloat16 = False
        self._network: tuple[object, Model] | None = None

    def __repr__(self) -> str:
        """The classes of its parts, and the number of its words."""
        parts = (self.model.encoder, self.model.decoder, self.search)
        names = ", ".join(type(part).__name__ for part in parts)
        return f"Captioner({names}, {len(self.vocabulary):,} words)"

    @property
    def config(self) -> dict[str, Any]:
        """Plain values from which `from_config` builds the same captioner, without parameters."""
        return captioner_config(self)

    @classmethod
    def from_config(
        cls, config: Any, kernels: bool | None = None, device: str = "cpu"
    ) -> "Captioner":
        """Build the captioner of a `config`, with random parameters on a device.

        Raises:
            InputError: a part is missing, has the wrong type, or does not fit the others.
        """
        parts = build_parts(config, device)
        captioner = cls(
            parts.model,
            parts.vocabulary,
            parts.preprocessing,
            parts.search,
            parts.map_name,
            kernels,
        )
        captioner.calibration = parts.calibration
        return captioner

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> "Captioner":
        """Move the model to a device; returns this object.

        On a GPU, TF32 is off from now on, whose annotation vectors differ by 1 % from a CPU's.
        """
        if torch.device(device).type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        self.model.to(device)
        return self

    @property
    def network(self) -> Model:
        """The accelerated model, which shares the parameters of `model`.

        It is `model` itself without kernels, and on a GPU. It is built again when the model moves,
        is frozen, or gets another decoder.
        """
        if not self.kernels:
            return self.model
        trains = any(parameter.requires_grad for parameter in self.model.parameters())
        key = self.device, trains, self.model.decoder
        if self._network is None or self._network[0] != key:
            self._network = key, accelerate(self.model)
        return self._network[1]

    def has_confidence(self, search: Search | None = None) -> bool:
        """Whether the calibration was fitted on captions by a search, by default the own one.

        Captions by other searches have no confidence.
        """
        search = search or self.search
        return self.calibration is not None and self.calibration.search == search.config

    def freeze(self) -> "Captioner":
        """Prepare for inference: evaluation mode, no gradients, faster encoding."""
        self.model.eval().requires_grad_(False)
        self._network = None  # its encoder may be of earlier weights
        _ = self.network  # accelerated once, before several threads ask for it
        return self

    @overload
    def __call__(self, photos: Photo, *args: Any, **options: Any) -> Caption: ...

    @overload
    def __call__(self, photos: Iterable[Photo], *args: Any, **options: Any) -> list[Caption]: ...

    def __call__(
        self,
        photos: Any,
        search: Search | None = None,
        maps: Sequence[str] = (),
        runners_up: int = 0,
        most: int | None = 1,
    ) -> Caption | list[Caption]:
        """Caption a photo or several photos; see `stream`.

        Raises:
            PhotoError: a photo cannot be read.
        """
        captions = list(raise_errors(self.stream(photos, search, maps, runners_up, most)))
        return captions[0] if is_one_photo(photos) else Captions(captions)

    def stream(
        self,
        photos: Photo | Iterable[Photo],
        search: Search | None = None,
        maps: Sequence[str] = (),
        runners_up: int = 0,
        most: int | None = 1,
        batch_size: int = BATCH_SIZE,
        tokens: Sequence[Sequence[int]] | None = None,
        photo_side: int | None = None,
    ) -> Iterator[Caption | PhotoError]:
        """Yield the caption of each photo, in order, or why the photo cannot be read.

        Args:
            photos: any iterable of `Photo`, which may be endless; an array (N, H, W, 3) or a tensor
                (N, 3, H, W).
            search: how words are chosen; defaults to the captioner's search.
            maps: names of maps to compute for the whole batch at once; ``heads`` stands for those
                of every layer and head. Other maps are computed by `Caption.map`.
            runners_up: number of alternatives to each word. They, or a confidence, cost one more
                pass over the captions.
            most: number of captions per photo to keep, the others as `Caption.others`; None for
                all that the search finds.
            batch_size: the most photos per batch.
            tokens: a caption of each photo as word ids, which is read and not searched.
            photo_side: keep each photo as `Caption.photo`, with at most so many pixels on its
                longer side, to draw on without reading the file again.

        Raises:
            InputError: the model's numbers overflow, or it has no such map.
        """
        search = search or self.search
        map_names = resolve_map_names(maps, self.model)

        work = partial(
            caption_batch,
            self,
            search=search,
            map_names=map_names,
            runners_up=runners_up,
            most=most,
            tokens=tokens,
        )
        batches = photo_batches(
            photos,
            work,
            preprocessing=self.preprocessing,
            device=self.device,
            batch_size=batch_size,
            in_turn=search.draws,
            photo_side=photo_side,
        )
        for captions in batches:
            yield from captions

    def batches(
        self,
        photos: Photo | Iterable[Photo],
        work: Callable[[Sequence[StreamedPhoto | PhotoError]], Result],
        batch_size: int = BATCH_SIZE,
        in_turn: bool = False,
    ) -> Iterator[Result]:
        """Yield the result of `work` for each batch of photos, in order; `stream` is made of it.

        Threads read the photos of the next batches. On a CPU several batches are worked on at once.

        Args:
            photos: as for `stream`.
            work: gets what the model sees of each photo of a batch, or why it cannot be read.
            batch_size: the most photos per batch.
            in_turn: one batch after another on a CPU, too.
        """
        return photo_batches(
            photos,
            work,
            preprocessing=self.preprocessing,
            device=self.device,
            batch_size=batch_size,
            in_turn=in_turn,
        )

    @torch.no_grad()
    def read(
        self, photo: Photo, text: str, runners_up: int = 0, maps: Sequence[str] = ()
    ) -> Caption:
        """Return a caption with these words, and the probabilities that the model gives them.

        Args:
            photo: as for `stream`.
            text: words of the vocabulary.
            runners_up: number of alternatives to each word, which the model would have said.
            maps: names of the maps that pictures and pages show.

        Raises:
            PhotoError: the photo cannot be read.
            InputError: a word is unknown, or there is no such map.
        """
        map_names = resolve_map_names(maps, self.model)
        streamed_photo = read_streamed_photo((0, photo), self.preprocessing)
        if isinstance(streamed_photo, PhotoError):
            raise streamed_photo
        tokens = [text_tokens(self, streamed_photo, text)]
        [caption] = caption_batch(
            self, [streamed_photo], self.search, map_names, runners_up, tokens=tokens
        )
        assert isinstance(caption, Caption)
        return caption

    def constrained(
        self,
        begin: str = "",
        avoid: Sequence[str] = (),
        must_say: Sequence[str] = (),
        search: Search | None = None,
        width: int | None = None,
    ) -> Search:
        """Return a search for captions that have, or do not have, these words.

        Args:
            begin: the beginning of every caption.
            avoid: words and phrases that no caption contains. Words match as a whole: captions
                without ``dog`` may have ``dogs``. Unknown words are never said.
            must_say: words and phrases that every caption contains.
            search: the search to take other settings from; defaults to the captioner's search.
            width: number of captions to follow; by default the width of `search` for each bank of
                captions that need equally many words.

        Raises:
            InputError: a word to say is unknown, or no caption can be as asked.
        """
        search = search or self.search
        return constrained_search(search, self.vocabulary, begin, avoid, must_say, width)

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Compute annotation vectors of images or of cached features; see `Model.encode`."""
        if self.bfloat16 and images.device.type == "cpu" and multiplies_bfloat16_fast():
            with torch.autocast("cpu", torch.bfloat16):
                return in_parts(self.network.encode, images).float()
        return in_parts(self.network.encode, images)

    def adapt(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """Apply the adapter, which gives the vectors that the decoder attends over."""
        with self._precision():
            return self.network.adapter(annotations)

    def remember_adapted(self, adapted: Float[Tensor, "B L A"]) -> Memory:
        """Compute what the decoder needs once per image (`Decoder.remember`).

        Args:
            adapted: the result of `adapt`.
        """
        with self._precision():
            return self.network.decoder.remember(adapted)

    def remember(self, annotations: Float[Tensor, "B L D"]) -> Memory:
        """Adapt annotation vectors, then compute what the decoder needs once per image.

        Args:
            annotations: the result of `encode`, unlike those of `Decoder.remember`, which are
                adapted.
        """
        return self.remember_adapted(self.adapt(annotations))

    def find_captions(
        self, memory: Memory | Float[Tensor, "B L D"], search: Search | None = None
    ) -> Decoded:
        """Find captions, by `search` or the default search.

        `memory` is the result of `remember`, or the annotation vectors.
        """
        if isinstance(memory, Tensor):
            memory = self.remember(memory)
        search = search or self.search
        search = search.for_words(self.vocabulary.unrepeatable_ids, memory.annotations.device)
        with self._precision():
            return search(self.network.decoder, memory)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Compute logits and attention weights before each token of finished captions."""
        inputs = F.pad(tokens, (1, -1), value=BOS)
        with self._precision():
            return self.network.decoder.teacher_forcing(memory, inputs)

    def _precision(self) -> AbstractContextManager[Any]:
        """Autocast to bfloat16, if the captioner computes in it."""
        if self.bfloat16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()
