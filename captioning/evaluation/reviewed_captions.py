"""Reviews of the captions of a data set, in the order of doubt."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import logit

from captioning.captioner import Captioner
from captioning.captioner.review import Review
from captioning.data.records import Record
from captioning.errors import PhotoError
from captioning.progress_bar import ProgressBar, say

FENCE = 1.5
"""Interquartile ranges between the quartiles and the outliers beyond them."""

CHANCE_MARGIN = 1e-9
"""Chances are clipped to [CHANCE_MARGIN, 1 - CHANCE_MARGIN]."""


@dataclass(frozen=True)
class ReviewedCaption:
    """A caption, its photo and its review."""

    photo: Path
    text: str
    review: Review


def review_captions(
    captioner: Captioner,
    records: Iterable[Record],
    doubt: float = 0.5,
    wrong_share: float = 0.5,
    batch_size: int = 16,
    judge_words: bool = True,
) -> list[ReviewedCaption]:
    """Review the captions of photos, and return them with the most doubtful first.

    A photo is read once, whatever the number of its records. Prints a line for each photo that
    cannot be read. The arguments are those of `Captioner.reviews`.
    """
    texts: defaultdict[Path, list[str]] = defaultdict(list)
    for record in records:
        texts[record.image] += record.captions
    photos = list(texts)
    results = captioner.reviews(
        photos, [*texts.values()], doubt, wrong_share, batch_size, judge_words
    )
    captions: list[ReviewedCaption] = []
    with ProgressBar("review", "photos", len(photos), visible=len(photos) > 1) as bar:
        for photo, reviews in zip(photos, results, strict=True):
            bar.update()
            if isinstance(reviews, PhotoError):
                say(f"captioning: {reviews}")
                continue
            captions += map(ReviewedCaption, [photo] * len(reviews), texts[photo], reviews)
    return sorted(captions, key=lambda caption: caption.review.right)


def outliers(captions: Sequence[ReviewedCaption]) -> list[ReviewedCaption]:
    """Return the captions that fit their photos far less than most, the least first.

    The log-odds that they belong to their photos are below the lower fence of a box plot (Tukey
    1977, "Exploratory data analysis").
    """
    chances = np.array([caption.review.belongs for caption in captions])
    log_odds = logit(chances.clip(CHANCE_MARGIN, 1 - CHANCE_MARGIN))
    lower, upper = np.quantile(log_odds, [0.25, 0.75])
    is_outlier = log_odds < lower - FENCE * (upper - lower)
    return [captions[index] for index in log_odds.argsort() if is_outlier[index]]
