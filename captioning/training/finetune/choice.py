"""The choice of a model between the trained one and the one that it started from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores
from captioning.training.initial import fitted_parameters, interpolate

START_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the start's parameters that are tried at the end; see `best_between`."""


class Candidate(NamedTuple):
    """A captioner between the start and the trained one."""

    captioner: Captioner
    start_weight: float  # of the start's parameters
    report: Report


def best_between(
    start: Captioner,
    trained: Captioner,
    groups: Sequence[Sequence[Record]],
    *,
    start_captions: Mapping[int | str, str],
    tokenizer_name: TokenizerName,
    model_name: str = "the start",
    start_weights: Sequence[float] = START_WEIGHTS,
) -> Candidate:
    """The best captioner between a trained one and the one that it started from.

    It is the one with the highest CIDEr or, if that is within one standard error of the start's
    (after Breiman et al. 1984, "Classification and regression trees", section 3.4.3), the start
    itself, with its own vocabulary and calibration; the trained one if all scores are 0.

    Args:
        start: the captioner that the training started from.
        trained: the trained captioner.
        groups: photos of one or more data sets. The scores of each are divided by its highest
            mean, so that a data set with high scores does not decide alone.
        start_captions: the start's captions of all photos, by image id.
        tokenizer_name: of the tokenizer that splits captions into the words of the scores.
        model_name: the name or the file of the start, for messages.
        start_weights: the weights to try; 1, the start itself, may only be the last.
    """
    records = [record for group in groups for record in group]
    start_parameters = fitted_parameters(start, trained, model_name).tensors
    candidates = []
    for start_weight in start_weights:
        if start_weight == 1:
            captioner, captions = start, start_captions
        else:
            captioner = trained
            if start_weight:
                captioner = interpolate(start_parameters, trained, start_weight)
            captions = split_captions(captioner, records)
        report = cider_report(captioner, captions, records, tokenizer_name)
        candidates.append(Candidate(captioner, start_weight, report))
    scores = np.array([candidate.report.images["CIDEr"] for candidate in candidates])
    _normalise(scores, [len(group) for group in groups])
    if not scores.any():
        return Candidate(trained, 0.0, candidates[0].report)
    best = int(scores.mean(axis=1).argmax())
    if start_weights[-1] == 1:
        gains = scores[best] - scores[-1]
        if gains.mean() <= gains.std(ddof=1) / len(records) ** 0.5:
            best = len(start_weights) - 1
    return candidates[best]


def _normalise(scores: NDArray[np.float64], group_sizes: Sequence[int]) -> None:
    """Divide the scores (candidates, images) of each group of images by its highest mean."""
    begin = 0
    for size in group_sizes:
        group_scores = scores[:, begin : begin + size]
        if group_scores.any():
            group_scores /= group_scores.mean(axis=1).max()
        begin += size


def cider_report(
    captioner: Captioner,
    captions: Mapping[int | str, str],
    records: Sequence[Record],
    tokenizer_name: TokenizerName,
) -> Report:
    """The CIDEr of a captioner's captions of these photos; captions of others are ignored."""
    return Report.of(
        {record.image_id: captions[record.image_id] for record in records},
        {record.image_id: record.captions for record in records},
        [cider_scores],
        tokenizer=tokenizer_name,
        repeatable=captioner.vocabulary.repeatable,
    )
