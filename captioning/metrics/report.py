"""All scores of a set of captions, as numbers and as a table."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from captioning.data.vocabulary import SPECIAL, UNK, tokenize
from captioning.errors import InputError
from captioning.metrics.bleu import corpus_bleu

ImageId = TypeVar("ImageId", bound=Hashable)

COUNTS = ("images", "distinct captions")


def score(
    captions: Mapping[ImageId, str], references: Mapping[ImageId, Sequence[str]]
) -> dict[str, float]:
    """How good the captions are: BLEU-1 to BLEU-4, and how many, how varied and how long.

    Both sides are tokenized alike; the mean length is in words and distinct captions are those
    that differ in a word.

    Args:
        captions: one caption per image.
        references: what people wrote of each image; images without a caption are ignored.

    Returns:
        BLEU in [0, 1] under "BLEU-1" to "BLEU-4", then "images", "distinct captions" and
        "mean length".

    Raises:
        InputError: there are no captions, or an image with a caption has no reference.
    """
    if not captions:
        raise InputError("there are no captions to score; caption at least one image")
    for image in captions:
        if not references.get(image):
            raise InputError(
                f"image {image!r} has a caption but no reference; score captions of the split "
                "whose annotations these are"
            )
    candidates = [_words(caption) for caption in captions.values()]
    written = [[tokenize(reference) for reference in references[image]] for image in captions]
    bleu = corpus_bleu(candidates, written)
    return {
        **{f"BLEU-{n}": value for n, value in enumerate(bleu, start=1)},
        "images": float(len(candidates)),
        "distinct captions": float(len(set(map(tuple, candidates)))),
        "mean length": sum(map(len, candidates)) / len(candidates),
    }


def _words(caption: str) -> list[str]:
    """The words of a generated caption, in which `<unk>` is one word and not three."""
    words = []
    for index, known in enumerate(caption.split(SPECIAL[UNK])):
        if index > 0:
            words.append(SPECIAL[UNK])
        words += tokenize(known)
    return words


def table(scores: Mapping[str, float]) -> str:
    """The scores as lines of text, one a line, the numbers right-aligned."""
    values = {
        name: f"{value:.0f}" if name in COUNTS else f"{value:.4f}" for name, value in scores.items()
    }
    names = max(map(len, values), default=0)
    numbers = max(map(len, values.values()), default=0)
    return "\n".join(f"{name:<{names}}  {value:>{numbers}}" for name, value in values.items())
