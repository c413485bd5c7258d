"""What people think of captions: files of ratings, with the captions that these are about.

Flickr8k's ratings are those of Hodosh et al., "Framing Image Description as a Ranking Task", 2013,
https://doi.org/10.1613/jair.3994. How they are compared with scores follows Hessel et al.,
"CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021, appendix A,
https://arxiv.org/abs/2104.08718, and the program that its authors published.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioning.data.readers.flickr8k import TOKENS, numbered_captions
from captioning.data.readers.table import csv_entries
from captioning.data.records import MOST_CAPTIONS
from captioning.data.results import read_references
from captioning.errors import InputError
from captioning.untrusted import short, text_of

MOST_RATINGS = 100_000
"""The most ratings of a file; every two of them are compared. Flickr8k-CF has those of 48,000 pairs
(Hessel et al. 2021, section 4.1)."""

EXPERT = ("1", "2", "3", "4")
REMEDY = (
    "expected image, caption#number and three ratings from 1 to 4 (Flickr8k-Expert), or image, "
    "caption#number, share of yes, number of yes and of no (Flickr8k-CF), parted by tabs"
)
COLUMNS = ("image", "caption", "rating")


@dataclass(frozen=True)
class Pair:
    """An image and a caption that people rated.

    Attributes:
        image: its id or file name.
        caption: its text.
        ratings: one or several; better captions have higher ones.
    """

    image: str
    caption: str
    ratings: tuple[float, ...]


@dataclass(frozen=True)
class Judgements:
    """Rated captions, and what else people wrote of their images.

    Attributes:
        kind: "Flickr8k-Expert", "Flickr8k-CF" or "CSV".
        pairs: rated captions.
        references: the captions of each image that scores may use.
        left_out: pairs of Flickr8k-Expert whose caption was written of the image itself.
        not_references: captions of an image that are no references, since they are rated.
    """

    kind: str
    pairs: tuple[Pair, ...]
    references: dict[str, tuple[str, ...]]
    left_out: int = 0
    not_references: int = 0


def read_judgements(ratings: str | Path, references: str | Path) -> Judgements:
    """Ratings with the captions that they are about.

    Where people rated a caption of the image itself, it must not be scored by itself. As in Hessel
    et al. 2021, the pair is left out of Flickr8k-Expert, and the caption is taken from the
    references of Flickr8k-CF; so it is from those of a CSV file.

    Args:
        ratings: a file in the format of Flickr8k-Expert or Flickr8k-CF, or CSV with the columns
            image, caption and rating.
        references: what people wrote of the images: a file like ``Flickr8k.token.txt`` or the
            folder that has it, or a JSON file for `read_references`, whose image ids the CSV has.

    Raises:
        InputError: a file is missing or malformed, or names what the other does not have.
    """
    written = _References.read(references)
    first = text_of(ratings).lstrip().partition("\n")[0]
    kind, pairs = _flickr8k(ratings, written) if "\t" in first else ("CSV", _table(ratings))
    if sum(len(pair.ratings) for pair in pairs) > MOST_RATINGS:
        raise InputError(f"{ratings}: more than {MOST_RATINGS:,} ratings; give fewer of them")
    of_images = {pair.image: list(written.of(pair.image, ratings)) for pair in pairs}
    given = len(pairs)
    not_references = 0
    if kind == "Flickr8k-Expert":
        pairs = [pair for pair in pairs if pair.caption not in of_images[pair.image]]
        of_images = {pair.image: of_images[pair.image] for pair in pairs}
    else:
        for pair in pairs:
            if pair.caption in of_images[pair.image]:
                of_images[pair.image].remove(pair.caption)
                not_references += 1
    for image, captions in of_images.items():
        if not captions:
            raise InputError(
                f"{references}: image {short(image)} has no caption that is not itself rated; "
                "add references of it, or leave it out of the ratings"
            )
    _check_ratings(pairs, ratings)
    return Judgements(
        kind,
        tuple(pairs),
        {image: tuple(captions) for image, captions in of_images.items()},
        given - len(pairs) if kind == "Flickr8k-Expert" else 0,
        not_references,
    )


@dataclass(frozen=True)
class _References:
    """Captions of images, and by their own names where they have any.

    Flickr8k's files differ in what follows the first full stop of an image's name.
    """

    path: str | Path
    images: dict[str, list[str]]
    named: dict[str, str] | None

    @classmethod
    def read(cls, path: str | Path) -> "_References":
        file = Path(path) / TOKENS if Path(path).is_dir() else Path(path)
        if file.suffix.lower() != ".txt":
            found = read_references(path)
            return cls(path, {str(image): list(texts) for image, texts in found.items()}, None)
        named = dict(numbered_captions(file))
        images: dict[str, list[str]] = defaultdict(list)
        for name, caption in named.items():
            image = name.rpartition("#")[0].partition(".")[0]
            if caption:
                images[image].append(caption)
            if len(images[image]) > MOST_CAPTIONS:
                raise InputError(
                    f"{file}: image {short(image)} has more than {MOST_CAPTIONS:,} captions; "
                    "leave some out"
                )
        return cls(path, images, named)

    def of(self, image: str, source: str | Path) -> list[str]:
        key = image if self.named is None else image.partition(".")[0]
        if key not in self.images:
            raise InputError(
                f"{source}: image {short(image)} has no caption in {self.path}; "
                "give the references of the same images"
            )
        return self.images[key]

    def caption(self, name: str, source: str | Path) -> str:
        if self.named is None:
            raise InputError(
                f"{source}: names captions of {TOKENS}, which {self.path} is not; "
                f"give {TOKENS} as the references"
            )
        if name not in self.named:
            raise InputError(
                f"{source}: no caption {short(name)} in {self.path}; "
                f"give the {TOKENS} that belongs to it"
            )
        return self.named[name]


def _flickr8k(path: str | Path, references: _References) -> tuple[str, list[Pair]]:
    """The name of the file's format, and its pairs; its first line decides which it is."""
    kind = ""
    pairs = []
    for place, values in _lines(path):
        image, name, *ratings = values
        is_expert = all(rating in EXPERT for rating in ratings)
        kind = kind or ("Flickr8k-Expert" if is_expert else "Flickr8k-CF")
        found = tuple(map(float, ratings)) if is_expert else _share(*ratings)
        if found is None or is_expert != (kind == "Flickr8k-Expert"):
            raise InputError(f"{place} has the ratings {short(', '.join(ratings))}; {REMEDY}")
        pairs.append(Pair(image, references.caption(name, place), found))
    return kind, pairs


def _lines(path: str | Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        values = line.strip().split("\t")
        if len(values) == 5:
            yield f"{path}: line {number}", values
        elif line.strip():
            raise InputError(f"{path}: line {number} is {short(line)}; {REMEDY}")


def _share(share: str, yes: str, no: str) -> tuple[float] | None:
    """The share of yes; none if it is not that of the counts."""
    numbers = [_number(text) for text in (share, yes, no)]
    if not all(0 <= number < math.inf for number in numbers) or numbers[1] + numbers[2] == 0:
        return None
    told, yeses, noes = numbers
    return (told,) if abs(told - yeses / (yeses + noes)) < 1e-5 else None


def _number(text: str) -> float:
    """The number; NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _table(path: str | Path) -> list[Pair]:
    """The pairs of a CSV file, in which rows of the same caption are ratings of one pair."""
    ratings: dict[tuple[str, str], list[float]] = defaultdict(list)
    for place, entry in csv_entries(path, COLUMNS):
        rating = _number(entry["rating"])
        if not math.isfinite(rating):
            raise InputError(f"{place}: the rating is {short(entry['rating'])}; give a number")
        ratings[entry["image"].strip(), entry["caption"].strip()].append(rating)
    return [Pair(image, caption, tuple(found)) for (image, caption), found in ratings.items()]


def _check_ratings(pairs: Sequence[Pair], path: str | Path) -> None:
    """Make sure that there is something to rank.

    Raises:
        InputError: there are no ratings, or all are the same.
    """
    if not pairs:
        raise InputError(f"{path}: no ratings; add some of captions that others wrote")
    if len({rating for pair in pairs for rating in pair.ratings}) == 1:
        raise InputError(f"{path}: all ratings are the same, which ranks no caption; add others")
