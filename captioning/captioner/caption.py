"""A caption of a photo, with probabilities and maps of its words."""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor

from captioning.data.images import read_image
from captioning.data.tokenizers import TokenizerName, joined, pieces
from captioning.errors import InputError
from captioning.files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RunnerUp(NamedTuple):
    """An alternative to a word, with its probability given the photo and the words before it."""

    word: str | None  # None: the end of the caption
    probability: float


@dataclass(frozen=True)
class Caption:
    """One caption with the details of each word.

    Attributes:
        words: the T words, without begin and end marks.
        probabilities: each word's probability given the photo and the words before it.
        score: the sum of the log probabilities of its words and its end mark, before calibration,
            divided by their number raised to the search's length penalty.
        crop: left, top, width and height, in pixels of the upright photo, of the part that the
            model saw; the grids of maps lie over this part.
        size: width and height of the upright photo in pixels.
        offset: rows and columns by which regions look further down, and further right, than where
            their cells of the grid lie; pictures and pages move maps by it.
        maps: the maps computed so far, by name; use `map` to get one.
        shown_maps: names of the maps that pictures and pages show, the first one by default.
        runners_up: the most probable alternatives of each word; empty unless requested.
        confidence: the chance that the caption is good; None if the model is not calibrated.
        tokenizer: of the model's vocabulary; decides where spaces are between words.
        photo: as it was given; None if it was a view.
        others: further captions that the search found, the best first.
    """

    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    score: float
    crop: tuple[float, float, float, float]
    size: tuple[int, int]
    maps: dict[str, Float[Tensor, "T _ _"]]
    shown_maps: tuple[str, ...]
    runners_up: tuple[tuple[RunnerUp, ...], ...] = ()
    confidence: float | None = None
    offset: tuple[float, float] = (0.0, 0.0)
    tokenizer: TokenizerName = "ptb"
    photo: str | Path | Image | None = field(default=None, compare=False, repr=False)
    others: tuple["Caption", ...] = field(default=(), compare=False, repr=False)
    _compute: Callable[[str], Float[Tensor, "T _ _"]] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def text(self) -> str:
        """The words as one line."""
        return joined(self.words, self.tokenizer)

    @property
    def sentence(self) -> str:
        """The text with a capital, and with a full stop in scripts that have capitals."""
        text = self.text
        ends_in_letter = unicodedata.category(text[-1:] or " ") in ("Ll", "Lu")
        return text[:1].upper() + text[1:] + "." * ends_in_letter

    def map(self, name: str | None = None) -> Float[Tensor, "T rows columns"]:
        """Which regions each word was written from; each word's map sums to one, and is kept.

        Args:
            name: one of `captioning.maps.MAPS`, or a head's; defaults to the first shown map.

        Raises:
            InputError: the model has no such map.
        """
        name = name or self.shown_maps[0]
        if name not in self.maps:
            if self._compute is None:
                raise InputError(f"the caption has no map {name!r}; it has {', '.join(self.maps)}")
            self.maps[name] = self._compute(name)
        return self.maps[name]

    def array(self, name: str | None = None) -> Float[np.ndarray, "T rows columns"]:
        """As `map`, as a NumPy array."""
        return self.map(name).numpy()

    def figure(self, map_name: str | None = None, photo: Image | None = None) -> "Figure":
        """The photo, then a panel for each word with its map, by default the first shown one.

        Args:
            map_name: which map.
            photo: the upright photo, if it has been read already.

        Raises:
            InputError: the photo is unknown or has changed since, or there is no such map.
        """
        from captioning.viewing.overlay import draw  # Matplotlib takes a while to import

        photo = photo or self._upright()
        maps = self.map(map_name).numpy()
        return draw(photo, self.words, self.probabilities, maps, self.crop, self.offset)

    def save(self, path: str | Path, photo: Image | None = None) -> None:
        """Write the photo with the map of each word over it, in the format of the path's suffix.

        Args:
            path: of a picture (.png), an animation (.gif) or an interactive page (.html).
            photo: the upright photo, if it has been read already.

        Raises:
            InputError: the photo is unknown or has changed since, the path has another suffix, or
                the file cannot be written.
        """
        from captioning.viewing.html_document import save_html
        from captioning.viewing.overlay import draw, save_animation
        from captioning.viewing.viewer import viewer_html

        photo, maps = photo or self._upright(), self.map().numpy()
        suffix = Path(path).suffix.lower()
        if suffix == ".png":
            with written_whole(path) as temporary:
                given = self.words, self.probabilities, maps, self.crop, self.offset
                figure = draw(photo, *given)
                figure.savefig(temporary)
        elif suffix == ".gif":
            spaced = pieces(self.words, self.tokenizer)
            save_animation(photo, spaced, maps, self.crop, path, self.offset)
        elif suffix == ".html":
            save_html(viewer_html(photo, [self.view()]), path)
        else:
            raise InputError(f"{path}: give a name that ends in .png, .gif or .html")

    def _repr_html_(self) -> str | None:
        """The interactive view, which notebooks show; None if the photo is unknown or changed."""
        from captioning.viewing.viewer import frame

        try:
            return frame(self._upright(), [self.view()])
        except InputError:
            return None

    def _upright(self) -> Image:
        """The photo as it was captioned; InputError if it is unknown or has another size by now."""
        if self.photo is None:
            raise InputError("the caption has no photo to draw on; caption the photo itself")
        photo = self.photo
        if isinstance(photo, str | Path):
            photo = read_image(photo, math.prod(self.size))
        if photo.size != self.size:
            raise InputError(f"the photo has another size by now, {photo.size}; caption it again")
        return photo

    def view(self) -> dict[str, Any]:
        """What pages show: `as_json`, crop, offset, and the shown maps as arrays by name."""
        maps = {name: self.array(name) for name in self.shown_maps}
        return self.as_json() | {"crop": self.crop, "offset": self.offset, "maps": maps}

    def as_json(self) -> dict[str, Any]:
        """The caption as plain JSON values, without maps."""
        pairs = zip(self.words, self.probabilities, strict=True)
        words: list[dict[str, Any]] = [{"word": word, "probability": p} for word, p in pairs]
        for entry, others in zip(words, self.runners_up, strict=False):  # empty unless requested
            entry["runners_up"] = [other._asdict() for other in others]
        sure = {} if self.confidence is None else {"confidence": self.confidence}
        return {"caption": self.text, **sure, "score": self.score, "words": words}
