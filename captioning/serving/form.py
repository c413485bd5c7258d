"""The fields of a request for captions and of its answer."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field

from captioning.errors import InputError
from captioning.maps import ATTENTION, MAPS
from captioning.numbers import shown
from captioning.search import BeamSearch, Sampling, Search

MOST_CAPTIONS = 10
"""The most captions of a photo, by beam search or by sampling."""


MOST_MAPPED = 3
"""The most captions of a photo with maps that take more than one pass, but for the server's own."""


class SettingError(InputError):
    """Settings that do not go together, or that this server does not offer."""


class CaptionForm(BaseModel):
    """The form of a request for captions."""

    model_config = ConfigDict(extra="forbid")

    photo: Annotated[
        UploadFile, Field(description="The photo: JPEG, PNG, WebP, GIF, TIFF, BMP or PPM.")
    ]
    captions: Annotated[
        int, Field(ge=1, le=MOST_CAPTIONS, description="How many captions, the best first.")
    ] = 1
    beam: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_CAPTIONS,
            description="Width of the beam search; at least as many as captions.",
        ),
    ] = None
    sample: Annotated[bool, Field(description="Sample words by their probability instead.")] = False
    temperature: Annotated[
        float | None,
        Field(
            ge=0.05,
            le=5,
            allow_inf_nan=False,
            description="Of sampling: below 1 for likelier words, above 1 for rarer ones.",
        ),
    ] = None
    view: Annotated[bool, Field(description="Return the attention as well.")] = False
    map: Annotated[
        str | None,
        Field(
            description="With view=true: which map of each word, by its name: "
            f"{', '.join(MAPS)}. A server may offer fewer. Gradients, occlusion and standout take "
            f"long: at most {MOST_MAPPED} captions have them, or more if the server shows that map "
            "first."
        ),
    ] = None
    compare: Annotated[
        str | None, Field(description="With view=true: another map, to be shown beside it.")
    ] = None

    def search(self, default: Search) -> Search:
        """How words are chosen.

        Args:
                default: the search of a request that sets none.

        Raises:
            SettingError: settings do not go together.
        """
        if self.sample and self.beam is not None:
            raise SettingError("beam and sample exclude each other; leave one of them out")
        kind = type(default)
        if self.sample or self.beam is not None:
            kind = Sampling if self.sample else BeamSearch
        given: dict[str, Any] = {"captions": self.captions} if kind is Sampling else {}
        if self.beam is not None:
            given["width"] = self.beam
        if self.temperature is not None:
            if kind is not Sampling:
                raise SettingError("temperature is for sampling; send sample=true with it")
            given["temperature"] = self.temperature
        search = default.replace(kind, **given)
        width = search.width if isinstance(search, BeamSearch) else 1
        if kind is not Sampling and self.captions > width:
            raise SettingError(
                f"a beam of {width} finds no {self.captions} captions; send "
                f"beam={self.captions}, or ask for fewer captions"
            )
        return search

    def maps(self, offered: Sequence[str]) -> tuple[str, ...]:
        """The map of each word that the view shows, and the one beside it, if any.

        Args:
            offered: the maps to choose from, the first for a request that chooses none. The first
                may take long: whoever runs the server chose it.

        Raises:
            SettingError: a map is not offered, nobody would see it, or it would take too long.
        """
        wanted = [name for name in (self.map, self.compare) if name is not None]
        if not self.view:
            if wanted:
                raise SettingError("map and compare are for the view; send view=true with them")
            return (ATTENTION,)
        for name in wanted:
            if name not in offered:
                raise SettingError(f"no map {shown(name)} here; choose from {', '.join(offered)}")
        names = tuple(dict.fromkeys([self.map or offered[0], *wanted[-1:]]))
        for name in names:
            if name == offered[0] or MAPS[name].takes_one_pass:
                continue
            if self.captions > MOST_MAPPED:
                raise SettingError(
                    f"{name} takes long, so at most {MOST_MAPPED} captions have it; ask for fewer "
                    "captions, or for another map"
                )
        return names


class WordAnswer(BaseModel):
    """A word of a caption."""

    word: str
    probability: float = Field(description="Given the photo and the words before it.")
    runners_up: list[dict[str, Any]] | None = Field(
        None,
        description="With view=true: the most probable other words, and their probabilities; the "
        "word is null for the end of the caption.",
    )


class CaptionAnswer(BaseModel):
    """A caption."""

    caption: str
    score: float = Field(description="Captions are ranked by it.")
    words: list[WordAnswer]


class Answer(BaseModel):
    """Captions of a photo, the best first."""

    captions: list[CaptionAnswer]
    view: dict[str, Any] | None = Field(
        None,
        description="With view=true: the photo as a JPEG (a data URI); crop, the left, top, width "
        "and height of what the model saw, in pixels of the photo's size; and the captions again, "
        "each word with its attention weights, or the map that was asked for, over rows x columns "
        "of the crop, one byte each from the top left, as base64; 255 stands for the word's peak. "
        "A caption names its map; the one to compare is in further.",
    )


class Health(BaseModel):
    """What the server is doing."""

    status: str = Field(description="ok")
    model: str
    waiting: int = Field(description="Requests that are being answered.")
    photos: int = Field(description="Captioned since the start.")
    batches: int = Field(description="In which these photos were captioned.")
