"""A caption of a photo, with probabilities and attention weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor

from captioning.errors import InputError
from captioning.maps import ATTENTION


class RunnerUp(NamedTuple):
    """An alternative to a word.

    Attributes:
        word: the other word; None for the end of the caption.
        probability: its probability given the photo and the words before it.
    """

    word: str | None
    probability: float


@dataclass(frozen=True)
class Caption:
    """One caption with the details of each word.

    Attributes:
        words: the T words, without begin and end marks.
        probabilities: each word's probability given the photo and the words before it.
        weights: the map of each word over the grid of regions, rows from top to bottom, each (rows,
            columns) map summing to one: attention while the word was written, unless another map
            was asked for.
        score: the search's score of the caption: the sum of the log probabilities of its words
            and its end mark, divided by their number raised to the length penalty.
        crop: left, top, width and height, in pixels of the upright photo, of the part that the
            model saw; the grid of weights lies over this part.
        size: width and height of the upright photo in pixels.
        runners_up: for each word its most probable alternatives, the best first; empty unless
            requested.
        map_name: which map `weights` are, by its name in `captioning.maps`, or the layer's and
            head's among the decoder's `map_names`.
        further_maps: maps to compare, by name, each on a grid of its own; empty unless requested.
        photo: the captioned photo as it was given, so that a notebook can show it; None if it was
            a view, since captioning many photos must not keep them in memory.
    """

    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    weights: Float[Tensor, "T rows columns"]
    score: float
    crop: tuple[float, float, float, float]
    size: tuple[int, int]
    runners_up: tuple[tuple[RunnerUp, ...], ...] = ()
    map_name: str = ATTENTION
    further_maps: Mapping[str, Float[Tensor, "T _ _"]] = field(default_factory=dict)
    photo: str | Path | Image | None = field(default=None, compare=False, repr=False)

    def showing(self, name: str) -> "Caption":
        """The same caption with another of its maps as `weights`; for `overlay.draw`, say.

        Raises:
            InputError: it has no map of this name.
        """
        maps = {self.map_name: self.weights, **self.further_maps}
        if name not in maps:
            raise InputError(f"the caption has no map {name!r}; it has {', '.join(maps)}")
        return replace(self, weights=maps.pop(name), map_name=name, further_maps=maps)

    @property
    def text(self) -> str:
        """The words as one line."""
        return " ".join(self.words)

    def as_json(self) -> dict[str, Any]:
        """The caption as plain JSON values, without the weights."""
        words: list[dict[str, Any]] = [
            {"word": word, "probability": probability}
            for word, probability in zip(self.words, self.probabilities, strict=True)
        ]
        for entry, others in zip(words, self.runners_up, strict=False):  # empty unless requested
            entry["runners_up"] = [other._asdict() for other in others]
        return {"caption": self.text, "score": self.score, "words": words}
