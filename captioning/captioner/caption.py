"""A caption of a photo, with probabilities and maps of its words."""

import math
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor

from captioning.captioner.calibration import rounded
from captioning.captioner.review import Review
from captioning.data.images import DecodedPhoto, Upload, read_image, upright
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import ENGLISH_JOINTS, join_words, pieces
from captioning.data.tokens import UNSPECIFIC_WORDS
from captioning.errors import InputError
from captioning.files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PHOTOS_SHOWN = 24
"""The most photos of a list of captions that a notebook shows."""


class RunnerUp(NamedTuple):
    """An alternative to a word, with its probability given the photo and the words before it."""

    word: str | None  # None: the end of the caption
    probability: float


@dataclass(frozen=True, repr=False)
class Caption:
    """One caption with the details of each word. Equality ignores maps, photo and other captions.

    A pickled or copied caption is without the model and the pixels of its photo: it keeps the maps
    that were computed before, and is drawn on the photo's file, or on the argument `photo`.

    Attributes:
        words: the T words as people write them, without begin and end marks.
        probabilities: each word's probability given the photo and the words before it.
        score: the sum of the log probabilities of its words and its end mark, before calibration,
            divided by their number raised to the search's length penalty.
        crop: left, top, width and height, in pixels of the upright photo, of the part that the
            model saw; the grids of maps lie over this part.
        size: width and height of the upright photo in pixels.
        maps: the maps computed so far, by name; use `map` to get one.
        shown_maps: names of the maps that pictures and pages show, the first one by default.
        runners_up: the most probable alternatives of each word; empty unless requested.
        named: the chance that people who describe the photo name what each word names; None for
            function words; empty if the model is not calibrated for it.
        confidence: the chance that the caption is good; None if the model is not calibrated for the
            search that found it, or if the caption was cut off at the search's `max_length`.
        tokenizer: the tokenizer of the vocabulary, which decides where spaces are between words.
        joints: what is written between words in place of a space, by the vocabulary.
        photo: a path, an upright image, the bytes of a file, or a photo that was scaled down to
            draw on; None if it was a view.
        others: the other captions of the photo that the search found, the best first.
        review: what the photo bears out of it; None unless it was reviewed.
    """

    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    score: float
    crop: tuple[float, float, float, float]
    size: tuple[int, int]
    maps: dict[str, Float[np.ndarray, "T _ _"]] = field(compare=False)
    shown_maps: tuple[str, ...] = field(compare=False)
    runners_up: tuple[tuple[RunnerUp, ...], ...] = ()
    confidence: float | None = None
    named: tuple[float | None, ...] = ()
    tokenizer: TokenizerName = "ptb"
    joints: Mapping[str, str] = field(default_factory=lambda: ENGLISH_JOINTS, compare=False)
    photo: str | Path | Upload | Image | DecodedPhoto | None = field(default=None, compare=False)
    others: tuple["Caption", ...] = field(default=(), compare=False)
    review: Review | None = None
    _compute_map: Callable[[str], Float[Tensor, "T _ _"]] | None = field(
        default=None, compare=False
    )
    _measure_cell_offset: Callable[[], tuple[float, float]] | None = field(
        default=None, compare=False
    )

    def __repr__(self) -> str:
        """One line, with the confidence if there is one."""
        confidence = "" if self.confidence is None else f", confidence={self.confidence:.2f}"
        return f"Caption({self.text!r}{confidence})"

    def __getstate__(self) -> dict[str, Any]:
        shown = tuple(name for name in self.shown_maps if name in self.maps) or tuple(self.maps)
        photo = self.photo if isinstance(self.photo, str | Path) else None
        state = self.__dict__ | {"photo": photo, "shown_maps": shown, "offset": self.offset}
        return state | {"_compute_map": None, "_measure_cell_offset": None}

    @cached_property
    def offset(self) -> tuple[float, float]:
        """Rows and columns by which regions look further down and right than their grid cells.

        Pictures and pages move maps by it. An encoder whose file has none is measured once.
        """
        return (0.0, 0.0) if self._measure_cell_offset is None else self._measure_cell_offset()

    @property
    def text(self) -> str:
        """The words as one line."""
        return join_words(self.words, self.tokenizer, self.joints)

    @property
    def sentence(self) -> str:
        """The text with a capital, and with a full stop in scripts that have capitals."""
        text = self.text
        ends_in_letter = unicodedata.category(text[-1:] or " ") in ("Ll", "Lu")
        return text[:1].upper() + text[1:] + "." * ends_in_letter

    @property
    def keywords(self) -> dict[str, float]:
        """The content words without `UNSPECIFIC_WORDS`, with their chances, the highest first."""
        keywords: dict[str, float] = {}
        for word, chance in zip(self.words, self.named, strict=False):  # empty if unknown
            if chance is not None and word.lower() not in UNSPECIFIC_WORDS:
                keywords[word] = max(chance, keywords.get(word, 0.0))
        return dict(sorted(keywords.items(), key=lambda keyword: keyword[1], reverse=True))

    def map(self, name: str | None = None) -> Float[Tensor, "T rows columns"]:
        """Return the map of each word: weights of the regions, which sum to one.

        Maps are kept once they are computed.

        Args:
            name: one of `captioning.maps.MAPS`, or a head's; defaults to the first shown map.

        Raises:
            InputError: the model has no such map.
        """
        return torch.from_numpy(self.array(name))

    def array(self, name: str | None = None) -> Float[np.ndarray, "T rows columns"]:
        """Return `map` as a NumPy array."""
        name = name or self.shown_maps[0]
        if name not in self.maps:
            if self._compute_map is None:
                raise InputError(f"the caption has no map {name!r}; it has {', '.join(self.maps)}")
            self.maps[name] = self._compute_map(name).numpy()
        return self.maps[name]

    def figure(self, map_name: str | None = None, photo: Image | None = None) -> "Figure":
        """Draw the photo, then a panel for each word with its probability and its map.

        Args:
            map_name: which map; by default the first shown one.
            photo: the photo, if it has been read already or the caption has been pickled.

        Raises:
            InputError: the photo is unknown or has changed since, or there is no such map.
        """
        from captioning.viewing.overlay import draw  # Matplotlib takes a while to import

        upright_photo, maps = self._upright_photo(photo), self.array(map_name)
        return draw(upright_photo, self.words, self.probabilities, maps, self.crop, self.offset)

    def save(self, path: str | Path, photo: Image | None = None) -> None:
        """Write the photo with the map of each word over it, in the format of the path's suffix.

        Args:
            path: of a picture (.png), an animation (.gif) or an interactive page (.html).
            photo: the photo, if it has been read already or the caption has been pickled.

        Raises:
            InputError: the photo is unknown or has changed since, the path has another suffix, or
                the file cannot be written.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".png", ".gif", ".html"):
            raise InputError(f"{path}: give a name that ends in .png, .gif or .html")
        with written_whole(path) as temporary:
            if suffix == ".png":
                self.figure(photo=photo).savefig(temporary)
            elif suffix == ".gif":
                from captioning.viewing.overlay import save_gif

                spaced_words = pieces(self.words, self.tokenizer, self.joints)
                upright_photo, maps = self._upright_photo(photo), self.array()
                save_gif(temporary, upright_photo, spaced_words, maps, self.crop, self.offset)
            else:
                from captioning.viewing.viewer import viewer_html

                page = viewer_html(self._upright_photo(photo), [self.view()])
                temporary.write_text(page, "ascii", newline="")

    def _repr_html_(self) -> str | None:
        """The interactive view, which notebooks show; None if the photo is unknown or changed."""
        from captioning.viewing.viewer import iframe

        try:
            return iframe(self._upright_photo(), [self.view()])
        except InputError:
            return None

    def _upright_photo(self, photo: Image | None = None) -> DecodedPhoto:
        """Read the photo, by default the one that was captioned.

        Raises:
            InputError: there is no photo, or it has another size than when it was captioned.
        """
        source = self.photo if photo is None else photo
        if source is None:
            raise InputError("the caption has no photo to draw on; give one as photo")
        if isinstance(source, DecodedPhoto):
            return source
        if isinstance(source, Image):
            image = upright(source)
        else:
            image = read_image(source, max_pixels=math.prod(self.size))
        if image.size != self.size:
            raise InputError(f"the photo has another size by now, {image.size}; caption it again")
        return DecodedPhoto(image, image.size)

    def reviewed(self, review: Review) -> "Caption":
        """Return the caption with a review of it, whose spelling of unknown words it takes."""
        return replace(self, words=review.words, review=review)

    def view(self) -> dict[str, Any]:
        """Return what pages show: `as_json`, crop, offset, and the shown maps as arrays by name."""
        maps = {name: self.array(name) for name in self.shown_maps}
        return self.as_json() | {"crop": self.crop, "offset": self.offset, "maps": maps}

    def as_json(self) -> dict[str, Any]:
        """Return the caption as plain JSON values, without maps; numbers are `rounded`."""

        def entry(word: str | None, probability: float) -> dict[str, Any]:
            return {"word": word, "probability": rounded(probability)}

        words = [*map(entry, self.words, self.probabilities)]
        for word, chance in zip(words, self.named, strict=False):  # empty if unknown
            word["named"] = None if chance is None else rounded(chance)
        for word, runners_up in zip(words, self.runners_up, strict=False):  # empty unless requested
            word["runners_up"] = [entry(*runner_up) for runner_up in runners_up]
        confidence = {} if self.confidence is None else {"confidence": rounded(self.confidence)}
        score = rounded(self.score) if math.isfinite(self.score) else None  # a word is unknown
        content: dict[str, Any] = {
            "caption": self.text,
            **confidence,
            "score": score,
            "words": words,
        }
        if self.named:
            keywords = {word: rounded(chance) for word, chance in self.keywords.items()}
            content["keywords"] = keywords
        if self.review is not None:
            content["review"] = self.review.as_json()
        return content


class Captions(list[Caption]):
    """Captions of several photos; a notebook shows the first of them beside their photos."""

    def _repr_html_(self) -> str:
        from captioning.data.framing import jpeg
        from captioning.viewing.viewer import THUMBNAIL

        page = ""
        for caption in self[:PHOTOS_SHOWN]:
            with suppress(InputError):  # its photo is unknown or has changed
                page += f'<img src="{jpeg(caption._upright_photo().image, THUMBNAIL)}" alt="">'
            page += f"<p>{escape(caption.text)}</p>"
        return page + f"<p>{len(self) - PHOTOS_SHOWN:,} more</p>" * (len(self) > PHOTOS_SHOWN)
