"""The server's answers, as `openapi.json` and `/docs` describe them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Described(BaseModel):
    """A part of an answer, which has no other fields."""

    model_config = ConfigDict(extra="forbid")


class OtherWord(Described):
    """What the model would have said instead of a word."""

    word: str | None = Field(description="The word; null for the end of the caption.")
    probability: float = Field(ge=0, le=1, description="As that of the word.")


class Word(Described):
    """A word of a caption."""

    word: str = Field(description="The word, as people write it.")
    probability: float = Field(
        ge=0, le=1, description="Its probability, for this photo after the words before it."
    )
    named: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The chance that people name what it names; null for words that name nothing. "
        "Only if the model is calibrated for it.",
    )
    runners_up: list[OtherWord] = Field(
        [], description="With view=true: the most probable other words."
    )


class ReviewedWord(Described):
    """A word of a caption under review."""

    word: str = Field(description="The word, as people write it.")
    chance: float | None = Field(
        ge=0,
        le=1,
        description="The chance that the photo bears it out; null for words that cannot be judged.",
    )
    instead: list[str] = Field(
        [], description="Of a doubtful word, what the model would say in its place."
    )


class ReviewOfCaption(Described):
    """What a photo bears out of a caption."""

    right: float = Field(
        ge=0,
        le=1,
        description="The chance that the caption belongs to the photo, times that of its least "
        "likely word.",
    )
    belongs: float = Field(
        ge=0, le=1, description="The chance that it is of this photo and not of another one."
    )
    unknown: list[str] = Field(description="The words that the model does not know.")
    words: list[ReviewedWord] = Field(description="Its words.")


class CaptionOfPhoto(Described):
    """A caption."""

    caption: str = Field(description="The caption.")
    confidence: float | None = Field(
        None, ge=0, le=1, description="The chance that it is good. Only if the model is calibrated."
    )
    score: float | None = Field(
        le=0,
        description="What captions are ranked by: the sum of the log probabilities of the words "
        "and the end, divided by their number to the power of the length penalty. Null if a word "
        "is unknown.",
    )
    words: list[Word] = Field(description="Its words.")
    keywords: dict[str, float] = Field(
        {},
        description="The words that name something, without postures, quantities and places within "
        "the photo, with their chances as in words, the highest first. Only if the model is "
        "calibrated for it.",
    )
    review: ReviewOfCaption | None = Field(
        None, description="With a text: its review. Only if the model is calibrated for it."
    )


class MapOfWord(Described):
    """The map of a word."""

    peak: float = Field(ge=0, le=1, description="The largest weight; all weights sum to 1.")
    weights: str = Field(
        description="A byte per region, row by row from the top left, in base64; 255 is the peak."
    )


class MapsOfWords(Described):
    """A map of each word of a caption."""

    map: str = Field(description="The name of the map.")
    rows: int = Field(description="Rows of regions.")
    columns: int = Field(description="Columns of regions.")
    words: list[MapOfWord] = Field(description="One for each word.")


class MappedCaption(CaptionOfPhoto):
    """A caption with maps of its words."""

    maps: list[MapsOfWords] = Field(description="The map asked for, then the one beside it.")


class PhotoView(Described):
    """What a page needs to show captions on their photo."""

    title: str = Field(description="Empty.")
    photo: str = Field(description="The photo, upright: a JPEG as a data URI.")
    size: list[int] = Field(
        min_length=2, max_length=2, description="Width and height of the photo sent, in pixels."
    )
    crop: list[float] = Field(
        min_length=4,
        max_length=4,
        description="Left, top, width and height, in these pixels, of the part that the model "
        "saw; the regions of maps divide it.",
    )
    offset: list[float] = Field(
        min_length=2,
        max_length=2,
        description="Rows and columns by which maps are to be moved down and right.",
    )
    captions: list[MappedCaption] = Field(description="The captions, the best first.")
    functions: list[str] = Field(description="Words that name nothing.")


class Answer(Described):
    """The answer for one photo."""

    captions: list[CaptionOfPhoto] = Field(description="The captions, the best first.")
    view: PhotoView | None = Field(None, description="With view=true: the captions with maps.")


class Refusal(Described):
    """Why a request, or one of several photos, has no captions."""

    error: str = Field(description="One sentence: what is wrong and what to do.")


class Answers(Described):
    """The answer for several photos."""

    photos: list[Answer | Refusal] = Field(description="One for each photo, in order.")


class ReviewAnswer(ReviewOfCaption):
    """The answer of /review for one photo."""

    view: PhotoView | None = Field(None, description="With view=true: the caption with maps.")


class ReviewAnswers(Described):
    """The answer of /review for several photos."""

    photos: list[ReviewAnswer | Refusal] = Field(description="One for each photo, in order.")


class Health(Described):
    """The answer of /health."""

    status: str = Field(description="ok")
    model: str = Field(description="The name of the model.")
    waiting: int = Field(description="Photos that wait or are being captioned.")
    photos: int = Field(description="Photos that have been captioned.")
    batches: int = Field(description="Batches in which they were.")


PARTS = (
    *(Answer, Answers, CaptionOfPhoto, Word, OtherWord),
    *(PhotoView, MappedCaption, MapsOfWords, MapOfWord),
    *(ReviewAnswer, ReviewAnswers, ReviewOfCaption, ReviewedWord, Refusal, Health),
)
"""In the order in which they are described."""

ONE: dict[str, Any] = {
    "captions": [
        {
            "caption": "brown dogs",
            "confidence": 0.4127,
            "score": -0.7133,
            "words": [
                {"word": "brown", "probability": 0.3012, "named": 0.3551},
                {"word": "dogs", "probability": 0.6124, "named": 0.7441},
            ],
        }
    ]
}

EXAMPLES: dict[str, Any] = {
    "one photo": ONE,
    "several photos": {"photos": [ONE, {"error": "notes.txt: not an image that can be read"}]},
}
"""Answers to requests for one caption."""
