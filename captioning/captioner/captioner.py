"""Photos in, captions out."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from PIL.Image import Image
from torch import Tensor
from torch.nn import functional as F

from captioning.captioner.calibration import Calibration, margins, signs_of
from captioning.captioner.caption import Caption, RunnerUp
from captioning.captioner.engine import Engine
from captioning.configurable import build
from captioning.data.images import Upload
from captioning.data.preprocessing import (
    Photo,
    Preprocessing,
    Readable,
    View,
    is_one_photo,
    readable,
    several_photos,
)
from captioning.data.vocabulary import BOS, EOS, PAD, Vocabulary
from captioning.errors import InputError
from captioning.maps import ATTENTION, Captioned, default_map, known_maps, word_maps
from captioning.models import Model
from captioning.models.decoder import Memory
from captioning.search import Decoded, Search
from captioning.search.constrained import constrained
from captioning.search.search import Alternatives, find_alternatives, generable_log_probs
from captioning.threads import cut, even_size, in_threads, thread_count

AT_ONCE = 16
"""The most photos of a batch."""


class Captioner(Engine):
    """A model with its vocabulary, preprocessing and search: photos in, captions out.

    Args:
        model: encoder, adapter and decoder.
        vocabulary: the words.
        preprocessing: how a photo becomes an image; the same in training and afterwards.
        search: the default search; beam search if None.
        map_name: the default map of a word, by its name in `captioning.maps`; defaults to the one
            that suits the decoder.
        kernels: whether to use the fast kernels (`captioning.kernels`); None for true, unless the
            environment sets ``CAPTIONING_KERNELS=off``.

    Raises:
        InputError: the vocabulary does not fit the decoder, or the model has no such map.

    Attributes:
        calibration: makes probabilities of words mean what they say, and gives captions a
            confidence; None for a model that has not been calibrated (`captioning calibrate`).
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
        [self.default_map] = known_maps([map_name] if map_name else (), model, default_map(model))
        super().__init__(model, search, kernels)
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.calibration: Calibration | None = None

    def __repr__(self) -> str:
        """The classes of its parts, and the number of its words."""
        parts = (self.model.encoder, self.model.decoder, self.search)
        names = ", ".join(type(part).__name__ for part in parts)
        return f"Captioner({names}, {len(self.vocabulary):,} words)"

    @property
    def config(self) -> dict[str, Any]:
        """Plain values from which `from_config` builds the same captioner, without parameters."""
        config: dict[str, Any] = {
            "model": self.model.config,
            "vocabulary": list(self.vocabulary.words),
            "tokenizer": self.vocabulary.tokenizer,
            "preprocessing": self.preprocessing.config,
            "search": self.search.config,
            "default_map": self.default_map,
        }
        if self.calibration is not None:
            config["calibration"] = self.calibration.config
        return config

    @classmethod
    def from_config(cls, config: Any, kernels: bool | None = None) -> "Captioner":
        """The captioner that `config` describes, with random parameters.

        Raises:
            InputError: a part is missing, has the wrong type, or does not fit the others.
        """
        for name in ("model", "vocabulary", "preprocessing", "search", "default_map"):
            if name not in config:
                raise InputError(f"the model's {name} is missing")
        captioner = cls(
            Model.from_config(config["model"]),
            Vocabulary.from_config(config["vocabulary"], config.get("tokenizer", "ptb")),
            build(config["preprocessing"], Preprocessing),
            build(config["search"], Search),
            config["default_map"],
            kernels,
        )
        if "calibration" in config:
            captioner.calibration = Calibration.from_config(config["calibration"])
        return captioner

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a path is a sequence of paths, too
        self,
        photos: Photo,
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
    ) -> Caption: ...

    @overload
    def __call__(
        self,
        photos: Iterable[Photo],
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
    ) -> list[Caption]: ...

    def __call__(
        self,
        photos: Any,
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
    ) -> Caption | list[Caption]:
        """The best caption of a photo, or a list with that of each of several; see `candidates`.

        Several photos are any iterable, also a generator, an array (N, H, W, 3) or a tensor
        (N, 3, H, W). They are captioned in batches of at most 16; on a CPU several batches at once.
        """
        given = several_photos(photos)
        count = len(given) if isinstance(given, Sized) else AT_ONCE * thread_count(self.device)
        size = even_size(count, AT_ONCE, self.device)
        # Images of Pillow are loaded by this thread, since the same one may be given twice.
        read = (readable(photo, self.preprocessing.max_pixels) for photo in given)

        def captions(batch: Sequence[Photo]) -> list[Caption]:
            return [best for [best] in self.candidates(batch, search, runners_up, maps, most=1)]

        in_turn = (search or self.search).draws
        batches = in_threads(captions, cut(read, size), self.device, in_turn)
        found = list(chain.from_iterable(batches))
        return found[0] if is_one_photo(photos) else found

    def __getattr__(self, name: str) -> Any:
        """Say how photos are captioned, to those who try ``caption`` or ``predict``."""
        raise AttributeError(f"a Captioner has no {name!r}; call it: captioner(photo)")

    @torch.no_grad()  # in inference mode, autocast would cast all weights again at every word
    def candidates(
        self,
        photos: Photo | Iterable[Photo],
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
        most: int | None = None,
    ) -> list[list[Caption]]:
        """All captions that the search found for each photo, the best first.

        Args:
            photos: any of `Photo`, or several of them, which are captioned at once.
            search: how words are chosen; defaults to the captioner's search.
            runners_up: number of alternatives to report for each word. They, or a confidence, cost
                one more pass over the captions.
            maps: names of maps to compute now, for the whole batch at once; ``heads`` stands for
                those of every layer and head. Other maps are computed when `Caption.map` is called.
            most: number of captions per photo to keep; None for all.

        Raises:
            InputError: a photo cannot be read, the model's numbers overflow, or it has no such map.
        """
        if isinstance(maps, str):
            raise InputError(f"maps: give a list of names, such as [{maps!r}]")
        read = [readable(photo, self.preprocessing.max_pixels) for photo in several_photos(photos)]
        views = [photo if isinstance(photo, View) else self.view(photo) for photo in read]
        if not views:
            return []
        names = known_maps(maps, self.model, self.default_map) if maps else ()
        images = torch.stack([view.pixels for view in views]).to(self.device)
        annotations = self.encode(images)
        search = (search or self.search).for_images(v.pixels.numpy().tobytes() for v in views)
        memory = self.remember(annotations)
        decoded = self.decode(memory, search)
        if decoded.scores.isnan().any():
            raise InputError("the model's numbers overflow; use another checkpoint")
        margin = margins(decoded.scores)[:, :most]
        decoded = Decoded(*(part[:, :most] for part in decoded))
        confidences, others = None, None
        if self.calibration is not None or runners_up:
            logits = self.logits(memory, decoded.tokens)
            others = self._others(logits, decoded.tokens, runners_up)
        if self.calibration is not None:
            confidences = self.calibration.confidence(signs_of(decoded, margin, logits))
            log_probs = self.calibration.log_probs(logits, decoded.tokens)
            decoded = decoded._replace(log_probs=log_probs)
        of_words = {}
        if names:
            captioned = Captioned(
                self.model, images, annotations, F.pad(decoded.tokens, (1, 0), value=BOS)
            )
            of_words = {
                name: word_maps(name, captioned).float().cpu()
                for name in names
                if name != ATTENTION  # the search has computed it
            }
        return self._captions(read, views, decoded, of_words, names, others, confidences)

    def signs(self, memory: Memory, decoded: Decoded) -> Float[Tensor, "B S"]:
        """What the confidence in the best caption of each image follows from."""
        best = Decoded(*(part[:, :1] for part in decoded))
        logits = self.logits(memory, best.tokens)
        return signs_of(best, margins(decoded.scores)[:, :1], logits)[:, 0]

    @torch.no_grad()
    def read(
        self, photo: Photo, text: str, runners_up: int = 0, maps: Sequence[str] = ()
    ) -> Caption:
        """The caption with these words, with the probabilities that the model gives them.

        Args:
            photo: as in `candidates`.
            text: words of the vocabulary.
            runners_up: as in `candidates`: what the model would have said instead of each word.
            maps: names of the maps that pictures and pages show.

        Raises:
            InputError: the photo cannot be read, a word is unknown, or there is no such map.
        """
        names = known_maps(maps, self.model, self.default_map) if maps else ()
        read = readable(photo, self.preprocessing.max_pixels)
        view = read if isinstance(read, View) else self.view(read)
        words = self.vocabulary.known_words(text)
        tokens = torch.tensor([[self.vocabulary.ids(words)]], device=self.device)
        annotations = self.encode(view.pixels[None].to(self.device))
        logits, weights = self.fast(annotations, tokens[..., :-1])
        written = tokens[..., 1:]
        log_probs = generable_log_probs(logits).gather(3, written[..., None]).squeeze(3)
        others = self._others(logits, written, runners_up)
        scores = log_probs.sum(dim=2) / written.shape[2] ** self.search.length_penalty
        if self.calibration is not None:
            log_probs = self.calibration.log_probs(logits, written)
        decoded = Decoded(written, log_probs, weights, scores)
        return self._captions([read], [view], decoded, shown_maps=names, others=others)[0][0]

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
            begin: what every caption begins with.
            avoid: words and phrases that no caption contains. Words match as a whole: captions
                without ``dog`` may have ``dogs``. Unknown words are never said anyway.
            must_say: words and phrases that every caption contains.
            search: what its other settings are taken from; defaults to the captioner's search.
            width: number of captions to follow; by default the width of `search` for each bank of
                captions that need equally many words.

        Raises:
            InputError: a word to say is unknown, or no caption can be as asked.
        """
        asked = search or self.search
        return constrained(asked, self.vocabulary, begin, avoid, must_say, width)

    def _others(
        self, logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"], k: int
    ) -> Alternatives | None:
        """The `k` best alternatives to each word; None for k = 0."""
        if not k:
            return None
        temperature = 1.0 if self.calibration is None else self.calibration.temperature
        return find_alternatives(logits / temperature, tokens, k)

    def _captions(
        self,
        photos: Sequence[Readable],
        views: Sequence[View],
        decoded: Decoded,
        of_words: Mapping[str, Float[Tensor, "B N T rows columns"]] | None = None,
        shown_maps: tuple[str, ...] = (),
        others: Alternatives | None = None,
        confidences: Float[Tensor, "B N"] | None = None,
    ) -> list[list[Caption]]:
        """The captions of each photo, with attention and further maps of their words."""
        grid = self.model.encoder.grid(*views[0].pixels.shape[1:])
        attention = decoded.weights.float().unflatten(3, grid).cpu()
        of_words = {ATTENTION: attention, **(of_words or {})}
        decoded = Decoded(*(part.cpu() for part in decoded))
        found: list[list[Caption]] = []
        for b, (photo, view) in enumerate(zip(photos, views, strict=True)):
            found.append([])
            for n in range(decoded.tokens.shape[1]):
                if decoded.scores[b, n].isneginf():  # a beam that could not be filled
                    continue
                tokens = decoded.tokens[b, n]
                length = int(((tokens != PAD) & (tokens != EOS)).sum())
                found[-1].append(
                    Caption(
                        words=self.vocabulary.decode(tokens.tolist()),
                        probabilities=tuple(decoded.log_probs[b, n, :length].exp().tolist()),
                        score=decoded.scores[b, n].item(),
                        crop=view.crop,
                        size=view.size,
                        maps={name: each[b, n, :length] for name, each in of_words.items()},
                        shown_maps=shown_maps or (self.default_map,),
                        tokenizer=self.vocabulary.tokenizer,
                        confidence=None if confidences is None else confidences[b, n].item(),
                        runners_up=() if others is None else self._runners_up(others, b, n, length),
                        photo=None if isinstance(photo, View | Upload) else photo,
                        _compute=partial(self._map, view, tokens, length),
                    )
                )
        return found

    def view(self, photo: str | Path | Upload | Image) -> View:
        """What the model sees of a photo; safe to call from several threads.

        Args:
            photo: a path, an upload, or an image as `read_image` returns it.

        Raises:
            InputError: the photo cannot be read.
        """
        return self.preprocessing(photo)

    def sentences(self, decoded: Decoded) -> list[str]:
        """The best caption of every image as one line of text."""
        return [self.vocabulary.text(row) for row in decoded.tokens[:, 0].tolist()]

    def _map(
        self, view: View, tokens: Int[Tensor, "S"], length: int, name: str
    ) -> Float[Tensor, "T rows columns"]:
        """The map of the words of one caption."""
        images = view.pixels[None].to(self.device)
        read = F.pad(tokens.to(self.device), (1, 0), value=BOS)[None, None]
        with torch.no_grad():
            annotations = self.encode(images)
        found = word_maps(name, Captioned(self.model, images, annotations, read))
        return found[0, 0, :length].float().cpu()

    def _runners_up(
        self, others: Alternatives, b: int, n: int, length: int
    ) -> tuple[tuple[RunnerUp, ...], ...]:
        tokens = others.tokens[b, n, :length].tolist()
        probabilities = others.probabilities[b, n, :length].tolist()
        return tuple(
            tuple(
                RunnerUp(None if token == EOS else self.vocabulary.decode([token])[0], probability)
                for token, probability in zip(*of_word, strict=True)
            )
            for of_word in zip(tokens, probabilities, strict=True)
        )
