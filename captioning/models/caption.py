"""What the model says about one photo."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Caption:
    """One caption with everything that is known of each of its words.

    Attributes:
        words: the T words, without begin and end marks.
        probabilities: each word's probability given the photo and the words before it.
        weights: attention over the grid of regions while each word was written, rows from top to
            bottom, each (rows, columns) map summing to one.
        score: the search's score of the caption: the sum of the log probabilities of its words
            and its end mark, divided by their number raised to the length penalty.
        crop: left, top, width and height, in pixels of the upright photo, of the part that the
            model saw; the grid of weights lies over this part.
        size: width and height of the upright photo in pixels.
    """

    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    weights: Float[Tensor, "T rows columns"]
    score: float
    crop: tuple[float, float, float, float]
    size: tuple[int, int]

    @property
    def text(self) -> str:
        """The words as one line."""
        return " ".join(self.words)

    def as_json(self) -> dict[str, Any]:
        """The caption as plain JSON values, without the weights."""
        return {
            "caption": self.text,
            "score": self.score,
            "words": [
                {"word": word, "probability": probability}
                for word, probability in zip(self.words, self.probabilities, strict=True)
            ],
        }
