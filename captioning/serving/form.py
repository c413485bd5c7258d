"""The fields of a request for captions and of its answer."""

from typing import Annotated, Any

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field

from captioning.errors import InputError
from captioning.search import BeamSearch, Sampling, Search

MOST_CAPTIONS = 10
"""The most captions of a photo, by beam search or by sampling."""


class SettingError(InputError):
    """Settings of a search that do not go together."""


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
        "each word with its attention weights over rows x columns of the crop, one byte each from "
        "the top left, as base64; 255 stands for the word's peak.",
    )


class Health(BaseModel):
    """What the server is doing."""

    status: str = Field(description="ok")
    model: str
    waiting: int = Field(description="Requests that are being answered.")
    photos: int = Field(description="Captioned since the start.")
    batches: int = Field(description="In which these photos were captioned.")
