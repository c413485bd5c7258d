"""People's ratings of captions, from files of Flickr8k or in CSV.

Flickr8k's ratings are from Hodosh et al. 2013, https://doi.org/10.1613/jair.3994, and used as in
Hessel et al. 2021, "CLIPScore", appendix A, https://arxiv.org/abs/2104.08718, and their program.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from captioning.data.readers.flickr8k import TOKENS, numbered_captions
from captioning.data.readers.rows import csv_entries
from captioning.data.records import MOST_CAPTIONS
from captioning.data.references import read_references
from captioning.errors import InputError
from captioning.untrusted import short, text_of

MOST_RATINGS = 100_000  # all pairs are compared; Flickr8k-CF has ratings of 48,000 captions

EXPERT = ("1", "2", "3", "4")
REMEDY = (
    "expected image, caption#number and three ratings from 1 to 4 (Flickr8k-Expert), or image, "
    "caption#number, share of yes, number of yes and of no (Flickr8k-CF), separated by tabs"
)
COLUMNS = ("image", "caption", "rating")


@dataclass(frozen=True)
class Pair:
    """A caption of an image that people rated; higher is better."""

    image: str  # its id or file name
    caption: str
    ratings: tuple[float, ...]


@dataclass(frozen=True)
class Judgements:
    """Rated captions and the references of their images."""

    kind: str  # "Flickr8k-Expert", "Flickr8k-CF" or "CSV"
    pairs: tuple[Pair, ...]
    references: dict[str, tuple[str, ...]]  # of each image
    left_out: int = 0  # omitted pairs of Flickr8k-Expert, whose caption is a reference
    not_references: int = 0  # omitted references, which are rated captions of the image


def read_judgements(ratings: str | Path, references: str | Path) -> Judgements:
    """Read ratings with their captions and references.

    A rated caption that is also a reference of its image must not be scored against itself. As in
    Hessel et al. 2021, such pairs of Flickr8k-Expert are omitted; for Flickr8k-CF, and for CSV, the
    caption is omitted from the references.

    Args:
        ratings: a file in the format of Flickr8k-Expert or Flickr8k-CF, or CSV with the columns
            image, caption and rating.
        references: a file like ``Flickr8k.token.txt`` or its folder, or a JSON file for
            `read_references` with the image ids of the CSV file.

    Raises:
        InputError: a file is missing or malformed, or the two do not fit each other.
    """
    written, named = _references(Path(references))
    is_csv = "\t" not in text_of(ratings).lstrip().partition("\n")[0]
    kind, rated = ("CSV", _table(ratings)) if is_csv else _flickr8k(ratings, references, named)
    if sum(len(pair.ratings) for pair in rated) > MOST_RATINGS:
        raise InputError(f"{ratings}: more than {MOST_RATINGS:,} ratings; give fewer of them")
    of_images = {}
    for pair in rated:
        image = pair.image.partition(".")[0] if named else pair.image
        if image not in written:
            raise InputError(
                f"{ratings}: image {short(pair.image)} has no caption in {references}; "
                "give the references of the same images"
            )
        of_images[pair.image] = list(written[image])
    pairs, not_references = rated, 0
    if kind == "Flickr8k-Expert":
        pairs = [pair for pair in rated if pair.caption not in of_images[pair.image]]
        of_images = {pair.image: of_images[pair.image] for pair in pairs}
    else:
        for pair in rated:
            if pair.caption in of_images[pair.image]:
                of_images[pair.image].remove(pair.caption)
                not_references += 1
    for image, captions in of_images.items():
        if not captions:
            raise InputError(
                f"{references}: all captions of image {short(image)} are rated themselves; "
                "add other references, or omit the image from the ratings"
            )
    if not pairs:
        raise InputError(f"{ratings}: no ratings; add ratings of captions that are not references")
    if len({rating for pair in pairs for rating in pair.ratings}) == 1:
        raise InputError(
            f"{ratings}: all ratings are equal, which does not rank captions; add others"
        )
    return Judgements(
        kind,
        tuple(pairs),
        {image: tuple(captions) for image, captions in of_images.items()},
        left_out=len(rated) - len(pairs),
        not_references=not_references,
    )


def _references(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The captions of each image, and of each caption name in the format of Flickr8k.

    Flickr8k's files differ in what follows the first full stop of an image's name.
    """
    file = path / TOKENS if path.is_dir() else path
    if file.suffix.lower() != ".txt":
        found = read_references(path).captions
        return {str(image): list(captions) for image, captions in found.items()}, {}
    named = dict(numbered_captions(file))
    images: dict[str, list[str]] = defaultdict(list)
    for name, caption in named.items():
        image = name.rpartition("#")[0].partition(".")[0]
        if caption:
            images[image].append(caption)
        if len(images[image]) > MOST_CAPTIONS:
            raise InputError(
                f"{file}: image {short(image)} has more than {MOST_CAPTIONS:,} captions; omit some"
            )
    return images, named


def _flickr8k(
    path: str | Path, references: str | Path, named: dict[str, str]
) -> tuple[str, list[Pair]]:
    """The name of the format, which the first line decides, and the pairs."""
    if not named:
        raise InputError(
            f"{path}: refers to captions of {TOKENS}, but {references} is another file; "
            f"give {TOKENS} as the references"
        )
    kind, pairs = "", []
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        values = line.strip().split("\t")
        if not line.strip():
            continue
        if len(values) != 5:
            raise InputError(f"{path}: line {number} is {short(line)}; {REMEDY}")
        image, name, *ratings = values
        is_expert = all(rating in EXPERT for rating in ratings)
        kind = kind or ("Flickr8k-Expert" if is_expert else "Flickr8k-CF")
        found = tuple(map(float, ratings)) if is_expert else _share(*ratings)
        if found is None or is_expert != (kind == "Flickr8k-Expert"):
            raise InputError(
                f"{path}: line {number} has the ratings {short(', '.join(ratings))}; {REMEDY}"
            )
        if name not in named:
            raise InputError(
                f"{path}: line {number}: no caption {short(name)} in {references}; "
                f"give the {TOKENS} of the same data set"
            )
        pairs.append(Pair(image, named[name], found))
    return kind, pairs


def _share(*ratings: str) -> tuple[float] | None:
    """The share of yes; None if it does not fit the counts of yes and no."""
    try:
        share, yes, no = map(float, ratings)
    except ValueError:
        return None
    if not 0 <= yes < math.inf or not 0 <= no < math.inf or yes + no == 0:
        return None
    return (share,) if abs(share - yes / (yes + no)) < 1e-5 else None


def _table(path: str | Path) -> list[Pair]:
    """The pairs of a CSV file; rows of the same caption are several ratings of one pair."""
    ratings: dict[tuple[str, str], list[float]] = defaultdict(list)
    for place, entry in csv_entries(path, COLUMNS):
        try:
            rating = float(entry["rating"])
        except ValueError:
            rating = math.nan
        if not math.isfinite(rating):
            raise InputError(f"{place}: the rating is {short(entry['rating'])}; give a number")
        ratings[entry["image"].strip(), entry["caption"].strip()].append(rating)
    return [Pair(image, caption, tuple(found)) for (image, caption), found in ratings.items()]
