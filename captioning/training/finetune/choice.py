"""Which model to keep, between the trained one and the one that it started from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from captioning.captioner import Captioner, load
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores
from captioning.training.initial import between

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the first model's parameters that are tried at the end; see `best_between`."""


class KeptModel(NamedTuple):
    """The captioner that is kept, the share of the start in it, and its report."""

    captioner: Captioner
    share: float
    report: Report


def best_between(
    model: str,
    trained: Captioner,
    records: Sequence[Record],
    tokenizer: TokenizerName,
    shares: Sequence[float] = SHARES,
    own: int | None = None,
) -> KeptModel:
    """The captioner to keep of those between a trained one and the model that it started from.

    Kept is the one with the highest CIDEr or, if that is within one standard error of the start's
    (after Breiman et al. 1984, "Classification and regression trees", section 3.4.3), the start
    itself, with its own vocabulary and calibration; the trained one if all scores are 0.

    Scores of the first `own` images, and of the others, count relative to the highest mean of
    theirs, so that a kind of photos with high scores does not decide alone.
    """
    captioners = [load(model) if share == 1 else between(model, trained, share) for share in shares]
    reports = [
        cider_report(split_captions(captioner, records), records, captioner, tokenizer)
        for captioner in captioners
    ]
    scores = np.array([report.images["CIDEr"] for report in reports])
    for part in (scores[:, :own], scores[:, own or len(records) :]):
        if part.any():
            part /= part.mean(axis=1).max()
    if not scores.any():
        return KeptModel(trained, 0.0, reports[0])
    best = int(scores.mean(axis=1).argmax())
    if shares[-1] == 1:
        better = scores[best] - scores[-1]
        if better.mean() <= better.std(ddof=1) / len(records) ** 0.5:
            best = len(shares) - 1
    return KeptModel(captioners[best], shares[best], reports[best])


def cider_report(
    captions: Mapping[int | str, str],
    records: Sequence[Record],
    captioner: Captioner,
    tokenizer: TokenizerName,
) -> Report:
    """The CIDEr by this tokenizer of a model's captions of these photos, and perhaps of others."""
    return Report.of(
        {record.image_id: captions[record.image_id] for record in records},
        {record.image_id: record.captions for record in records},
        [cider_scores],
        tokenizer=tokenizer,
        repeatable=captioner.vocabulary.repeatable,
    )
