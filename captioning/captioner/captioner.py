"""Photos in, captions out.

Shapes: B images, N captions per image, T words, L regions, D annotation width,
V vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner.calibration import Calibration
from captioning.captioner.caption import Caption, Captions
from captioning.captioner.decoded_batch import PhotoView, decode_batch, encode_batch
from captioning.captioner.description import describe
from captioning.configurable import build
from captioning.data.images import Upload
from captioning.data.preprocessing import Photo, Preprocessing, View, is_one_photo
from captioning.data.tokenizers import ENGLISH_JOINTS
from captioning.data.vocabulary import BOS, PAD, UNK, Vocabulary
from captioning.device import multiplies_bfloat16_fast
from captioning.errors import InputError, PhotoError, printable, raise_errors, shown
from captioning.files import LONGEST_PATH
from captioning.kernels import accelerate, in_parts, on_by_default
from captioning.maps import default_map, known_maps
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.decoder import Memory
from captioning.models.model import limited_parameters
from captioning.search import BeamSearch, ConstrainedBeamSearch, Decoded, Search
from captioning.search.search import find_substitutes
from captioning.threads import LEAST, batched, in_threads, read_ahead, thread_count

Result = TypeVar("Result")

BATCH_SIZE = 16
"""The most photos per batch, by default."""

AHEAD = 2
"""Batches whose photos are read ahead."""


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
        [self.default_map] = known_maps([map_name or default_map(model)], model)
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
        vocabulary, repeatable = self.vocabulary, self.vocabulary.repeatable
        offset = self.model.encoder.offsets.get(self.preprocessing.size)
        spellings = {word: each for word, each in vocabulary.spellings.items() if each != word}
        config = {
            "model": self.model.config,
            "vocabulary": list(vocabulary.words),
            "tokenizer": vocabulary.tokenizer,
            "preprocessing": self.preprocessing.config,
            "search": self.search.config,
            "default_map": self.default_map,
            "offset": None if offset is None else list(offset),
            "repeatable": None if repeatable is None else sorted(repeatable),
            "spellings": spellings or None,
            "ranks": vocabulary.ranks or None,
            "joints": None if vocabulary.joints == ENGLISH_JOINTS else dict(vocabulary.joints),
            "calibration": self.calibration and asdict(self.calibration),
        }
        return {name: value for name, value in config.items() if value is not None}

    @classmethod
    def from_config(
        cls, config: Any, kernels: bool | None = None, device: str = "cpu"
    ) -> "Captioner":
        """The captioner that `config` describes, with random parameters on this device.

        Raises:
            InputError: a part is missing, has the wrong type, or does not fit the others.
        """
        try:
            encoder, adapter, decoder = itemgetter("encoder", "adapter", "decoder")(config["model"])
            with torch.device(device), limited_parameters():
                parts = build(encoder, Encoder), build(adapter, Adapter), build(decoder, Decoder)  # type: ignore[type-abstract]
            captioner = cls(
                Model(*parts),
                Vocabulary(
                    config["vocabulary"],
                    config.get("tokenizer", "ptb"),
                    config.get("repeatable"),
                    config.get("spellings") or {},
                    config.get("ranks") or {},
                    config.get("joints", ENGLISH_JOINTS),
                ),
                build(config["preprocessing"], Preprocessing),
                build(config["search"], Search),  # type: ignore[type-abstract]
                config["default_map"],
                kernels,
            )
        except KeyError as error:
            raise InputError(f"the model's {error.args[0]} is missing") from None
        if "offset" in config:
            down, right = map(float, config["offset"])
            captioner.model.encoder.offsets[captioner.preprocessing.size] = down, right
        if "calibration" in config:
            calibration = Calibration.from_config(config["calibration"])
            # Files of version 0.4 do not say the search; it was their own.
            search = build(calibration.search or config["search"], Search)  # type: ignore[type-abstract]
            captioner.calibration = replace(calibration, search=search.config)
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
        """What computes: the accelerated model, which shares the parameters of `model`.

        It is `model` itself without kernels, and on a GPU. It is made again when the model moves,
        is frozen, or gets another decoder.
        """
        return self._accelerated() if self.kernels else self.model

    def _accelerated(self) -> Model:
        trains = any(parameter.requires_grad for parameter in self.model.parameters())
        key = self.device, trains, self.model.decoder
        if self._network is None or self._network[0] != key:
            self._network = key, accelerate(self.model)
        return self._network[1]

    def has_confidence(self, search: Search | None = None) -> bool:
        """Whether captions by a search, by default the captioner's own, get a confidence.

        They do if the calibration was fitted on captions by this search.
        """
        search = search or self.search
        return self.calibration is not None and self.calibration.search == search.config

    def freeze(self) -> "Captioner":
        """Prepare a model that will not be trained any more: evaluation mode, faster encoding."""
        self.model.eval().requires_grad_(False)
        self._network = None  # its encoder may be of earlier weights
        if self.kernels:
            self._accelerated()  # once, before several threads ask for it
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
        """The caption of a photo, or a list with that of each of several; see `stream`.

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
    ) -> Iterator[Caption | PhotoError]:
        """One result for each photo, in order: its caption, or why it cannot be read.

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

        Raises:
            InputError: the model's numbers overflow, or it has no such map.
        """
        search = search or self.search
        names = known_maps(maps, self.model)

        def work(batch: Sequence[PhotoView | PhotoError]) -> list[Caption | PhotoError]:
            written = None
            if tokens is not None:
                views = [view for view in batch if isinstance(view, PhotoView)]
                of_views = [torch.tensor(tokens[view.number]) for view in views]
                written = pad_sequence(of_views, batch_first=True, padding_value=PAD)[:, None]
            return self._captions(batch, search, names, runners_up, most, written)

        for results in self.batches(photos, work, batch_size, in_turn=search.draws):
            yield from results

    def batches(
        self,
        photos: Photo | Iterable[Photo],
        work: Callable[[Sequence[PhotoView | PhotoError]], Result],
        batch_size: int = BATCH_SIZE,
        in_turn: bool = False,
    ) -> Iterator[Result]:
        """The result of `work` for each batch of photos, in order; `stream` is made of it.

        Threads read the photos of the next batches. On a CPU several batches are worked on at once.

        Args:
            photos: as for `stream`.
            work: gets what the model sees of each photo of a batch, or why it cannot be read.
            batch_size: the most photos per batch.
            in_turn: one batch after another on a CPU, too.
        """
        several: Any = [photos] if is_one_photo(photos) else photos
        if not isinstance(several, Iterable) or hasattr(several, "columns"):
            raise InputError(
                f"{shown(photos)}: not a photo; give a path, an image, bytes or pixels, or several "
                "of them, such as a column of a table"
            )
        size, threads = batch_size, thread_count(self.device)
        if isinstance(several, Sized) and not in_turn:  # equal batches that keep all threads busy
            rounds = math.ceil(len(several) / (batch_size * threads))
            even = math.ceil(len(several) / max(rounds * threads, 1))
            size = min(batch_size, max(LEAST, even))

        views = read_ahead(self._view, enumerate(several), AHEAD * size)
        yield from in_threads(work, batched(views, size), self.device, in_turn)

    def _view(self, numbered: tuple[int, Photo]) -> PhotoView | PhotoError:
        """What the model sees of a photo with its place in a stream, or why it cannot be read."""
        number, photo = numbered
        is_named = isinstance(photo, str | Path | Upload) and len(str(photo)) <= LONGEST_PATH
        name = photo if is_named else f"photo {number + 1}"
        try:
            readable = self.preprocessing.photo_source(photo, str(name))
            view = readable if isinstance(readable, View) else self.preprocessing(readable)
        except InputError as error:
            path = name if isinstance(name, Path) else str(name)
            return PhotoError(path, str(error).removeprefix(f"{printable(name)}: "))
        return PhotoView(number, readable, view)

    @torch.no_grad()  # in inference mode, autocast would cast all weights again at every word
    def _captions(
        self,
        photos: Sequence[PhotoView | PhotoError],
        search: Search,
        maps: Sequence[str],
        runners_up: int = 0,
        most: int | None = 1,
        written: Int[Tensor, "B N T"] | None = None,
    ) -> list[Caption | PhotoError]:
        """The caption of each photo of a batch, or why it cannot be read; see `stream`.

        With `written`, these tokens are the captions, and none is searched.
        """
        views = [photo for photo in photos if isinstance(photo, PhotoView)]
        if not views:
            return [photo for photo in photos if isinstance(photo, PhotoError)]
        needs_logits = self.calibration is not None or runners_up > 0
        batch = decode_batch(self, views, search, written, needs_logits, most)
        has_confidence = written is None and self.has_confidence(search)
        captions = describe(self, views, batch, maps, runners_up, has_confidence)
        return [photo if isinstance(photo, PhotoError) else next(captions) for photo in photos]

    @torch.no_grad()
    def read(
        self, photo: Photo, text: str, runners_up: int = 0, maps: Sequence[str] = ()
    ) -> Caption:
        """The caption with these words, with the probabilities that the model gives them.

        Args:
            photo: as for `stream`.
            text: words of the vocabulary.
            runners_up: what the model would have said instead of each word: so many alternatives.
            maps: names of the maps that pictures and pages show.

        Raises:
            PhotoError: the photo cannot be read.
            InputError: a word is unknown, or there is no such map.
        """
        names = known_maps(maps, self.model)
        [view] = raise_errors([self._view((0, photo))])
        ids = self.vocabulary.encode(text)[1:]
        substitutes: list[tuple[str, ...]] = []
        if UNK in ids:
            memory = self.model.remember(encode_batch(self, [view]).annotations)
            words_by_place = find_substitutes(self.model.decoder, memory, ids, 2)
            substitutes = [self.vocabulary.spelt(words) for words in words_by_place]
        self.vocabulary.known_words(text, substitutes)
        written = torch.tensor([[ids]])
        [caption] = self._captions([view], self.search, names, runners_up, written=written)
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
        """A search for captions with or without given words, to caption photos with.

        Args:
            begin: the beginning of every caption.
            avoid: words and phrases that no caption contains. Words match as a whole: captions
                without ``dog`` may have ``dogs``. Unknown words are never said anyway.
            must_say: words and phrases that every caption contains.
            search: what its other settings are taken from; defaults to the captioner's search.
            width: number of captions to follow; by default the width of `search` for each bank of
                captions that need equally many words.

        Raises:
            InputError: a word to say is unknown, or no caption can be as asked.
        """

        def ids(text: str) -> list[int]:
            return self.vocabulary.ids(self.vocabulary.known_words(text))[1:-1]

        constrained: Any = (search or self.search).replace(
            ConstrainedBeamSearch,
            begin=ids(begin) if begin else [],
            avoid=[ids(text) for text in avoid if UNK not in self.vocabulary.encode(text)],
            must_say=[ids(text) for text in must_say],
        )
        return constrained.replace(width=width or constrained.width * constrained.automaton.banks)

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Annotation vectors of images or of cached features, as `Model.encode` takes them."""
        if self.bfloat16 and images.device.type == "cpu" and multiplies_bfloat16_fast():
            with torch.autocast("cpu", torch.bfloat16):
                return in_parts(self.network.encode, images).float()
        return in_parts(self.network.encode, images)

    def adapt(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B L A"]:
        """The adapter's annotation vectors, which the decoder attends over."""
        with self._precision():
            return self.network.adapter(annotations)

    def remember_adapted(self, adapted: Float[Tensor, "B L A"]) -> Memory:
        """What the decoder computes once per image, from what `adapt` gives."""
        with self._precision():
            return self.network.decoder.remember(adapted)

    def remember(self, annotations: Float[Tensor, "B L D"]) -> Memory:
        """Everything that the decoder computes once per image."""
        return self.remember_adapted(self.adapt(annotations))

    def find_captions(
        self, memory: Memory | Float[Tensor, "B L D"], search: Search | None = None
    ) -> Decoded:
        """Captions as tokens, by `search` or the default search.

        `memory` is what `remember` gives, or the annotation vectors.
        """
        if isinstance(memory, Tensor):
            memory = self.remember(memory)
        search = search or self.search
        of_words = search.for_words(self.vocabulary.once, memory.annotations.device)
        with self._precision():
            return of_words(self.network.decoder, memory)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Logits and attention weights before each token of finished captions, which are read."""
        read = F.pad(tokens, (1, -1), value=BOS)
        with self._precision():
            return self.network.decoder.teacher_forcing(memory, read)

    def _precision(self) -> AbstractContextManager[Any]:
        """Within it, the adapter and the decoder compute in bfloat16 if this does."""
        is_half = self.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16) if is_half else nullcontext()
