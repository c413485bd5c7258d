"""The fields of requests for captions, and for reviews of captions."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import HTTPException, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from captioning.captioner import Captioner
from captioning.data.images import UPLOAD_KINDS
from captioning.errors import InputError, format_value
from captioning.maps import MAPS, ONE_PASS
from captioning.search import BeamSearch, Sampling, Search
from captioning.serving.protection import MAX_PHOTOS
from captioning.web.page import MAX_CAPTIONS

LONGEST_TEXT = 200  # characters
MAX_REVIEW_WORDS = 40  # of a text to review, since each is read with others in its place
NO_REVIEWS = "this model is not calibrated for reviews; see captioning calibrate"
MAX_MAPPED = 60  # words of all captions, for all maps that take several passes


@dataclass(frozen=True)
class Settings:
    """What a request asks for."""

    search: Search
    captions: int  # how many
    view: bool  # whether the answer shows maps, and alternatives to each word
    maps: tuple[str, ...]  # names of those to show; empty without a view
    text: str | None  # a caption to read, instead of a search
    review: bool = False  # whether the answer is the review of that text

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Photos with equal keys can share a batch."""
        reads = self.text is not None  # every photo has its own text
        return repr(self.search.config), self.view, self.maps, reads

    @property
    def is_slow(self) -> bool:
        """Whether a map or the review of a text takes so long that no other photo should wait."""
        return self.text is not None or bool(_slow(self.maps))


class PhotoForm(BaseModel):
    """The fields that all forms have."""

    model_config = ConfigDict(extra="forbid")

    photo: list[UploadFile] = Field(
        min_length=1,
        description=f"The photo: {UPLOAD_KINDS}. Repeatable, for several "
        f"photos with these settings: {MAX_PHOTOS}, unless the server was started otherwise.",
    )
    view: bool = Field(False, description="Return a map of each word as well.")
    map: str | None = Field(
        None,
        description=f"With view=true: the map of each word, one of {', '.join(MAPS)}. A server may "
        "offer fewer. Maps that take several passes are computed for at most "
        f"{MAX_MAPPED} words of all captions: two such maps for half as many.",
    )
    compare: str | None = Field(None, description="With view=true: a second map, shown beside it.")

    def map_names(self, offered: Sequence[str], words: int) -> tuple[str, ...]:
        """The maps that the form asks for; raises HTTPException if the server cannot give them.

        Args:
            offered: names of maps, the default first.
            words: the most words that have maps.
        """
        requested = [name for name in (self.map, self.compare) if name is not None]
        if requested and not self.view:
            raise HTTPException(422, "map and compare are for the view; send view=true with them")
        if not self.view:
            return ()
        for name in requested:
            if name not in offered:
                names = ", ".join(offered)
                raise HTTPException(
                    422, f"map {format_value(name)} is not offered here; choose from {names}"
                )
        maps = tuple(dict.fromkeys([self.map or offered[0], *requested[-1:]]))
        if (slow := _slow(maps)) and words * len(slow) > MAX_MAPPED:
            raise HTTPException(
                422,
                f"maps by {' and '.join(slow)} take long, so at most {MAX_MAPPED // len(slow)} "
                f"words may have them, not {words}; ask for fewer or shorter captions",
            )
        return maps


class CaptionForm(PhotoForm):
    """The form of a request for captions."""

    captions: int = Field(1, ge=1, le=MAX_CAPTIONS, description="How many, the best first.")
    beam: int | None = Field(
        None, ge=1, le=MAX_CAPTIONS, description="Width of beam search, from captions up."
    )
    sample: bool = Field(False, description="Sample words instead of searching.")
    temperature: float | None = Field(
        None,
        ge=0.05,
        le=5,
        allow_inf_nan=False,
        description="Of sampling: below 1 favours probable words, above 1 rare ones.",
    )
    begin: str | None = Field(
        None, max_length=LONGEST_TEXT, description="Words that captions by beam search begin with."
    )
    text: str | None = Field(
        None, max_length=LONGEST_TEXT, description="A caption to read instead of writing one."
    )

    def settings(self, captioner: Captioner, offered: Sequence[str]) -> Settings:
        """What the form asks for; raises HTTPException if the server cannot give it.

        Args:
            captioner: has the default search, and knows the words.
            offered: names of maps, the default first.
        """
        search = self._search(captioner.search)
        try:
            if self.text is not None:
                captioner.vocabulary.known_words(self.text)
            if self.begin is not None:
                search = captioner.constrained(self.begin, search=search)
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        words = self.captions * search.max_length
        if self.text is not None:
            words = word_count(captioner, self.text)
        maps = self.map_names(offered, words)
        return Settings(search, self.captions, self.view, maps, self.text)

    def _search(self, default: Search) -> Search:
        if self.sample and self.beam is not None:
            raise HTTPException(422, "beam and sample exclude each other; leave one of them out")
        if self.begin is not None and (self.sample or self.text is not None):
            raise HTTPException(422, "begin is for beam search; leave out sample and text")
        kind = BeamSearch if self.beam else Sampling if self.sample else type(default)
        if kind is Sampling:
            temperature = {} if self.temperature is None else {"temperature": self.temperature}
            # Without a seed, there are other captions at every request.
            return default.replace(kind, captions=self.captions, seed=None, **temperature)
        if self.temperature is not None:
            raise HTTPException(422, "temperature is for sampling; send sample=true with it")
        search = default.replace(kind, **({"width": self.beam} if self.beam else {}))
        width = search.width if isinstance(search, BeamSearch) else 1
        if self.captions > width:
            raise HTTPException(
                422,
                f"a beam of {width} finds fewer than {self.captions} captions; send "
                f"beam={self.captions}, or ask for fewer captions",
            )
        return search


class ReviewForm(PhotoForm):
    """The form of a request for a review."""

    text: str = Field(
        max_length=LONGEST_TEXT, description="The caption to review; its words may be unknown."
    )

    def settings(self, captioner: Captioner, offered: Sequence[str]) -> Settings:
        """What the form asks for, as for `CaptionForm`."""
        if captioner.review_calibration is None:
            raise HTTPException(422, NO_REVIEWS)
        maps = self.map_names(offered, word_count(captioner, self.text))
        return Settings(captioner.search, 1, self.view, maps, self.text, review=True)


def word_count(captioner: Captioner, text: str) -> int:
    """The number of words of a text; raises HTTPException if there are none, or too many."""
    count = len(captioner.vocabulary.encode(text)) - 2  # begin and end
    if not count:
        raise HTTPException(422, "text: has no words; send the caption of a photo")
    if count > MAX_REVIEW_WORDS and captioner.review_calibration is not None:
        raise HTTPException(422, f"text: {count} words; send at most {MAX_REVIEW_WORDS}")
    return count


def _slow(maps: Sequence[str]) -> list[str]:
    """The maps that take several passes."""
    return [name for name in maps if name not in ONE_PASS]
