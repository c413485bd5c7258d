"""The choice of a model between the trained one and the one that it started from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores
from captioning.training.initial import fitted_parameters, interpolate

START_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the start's parameters that are tried at the end; see `best_between`."""


FOLDS = 5
"""Parts of the validation photos, each captioned by the candidate that the other parts choose."""


@dataclass(frozen=True)
class Choice:
    """A captioner between the start and the trained one.

    Attributes:
        captioner: the captioner.
        start_weight: weight of the start's parameters in it.
        captions: its captions of the photos that it was chosen by, by image id.
        cross_fitted_captions: of each photo, the caption by the candidate that photos of other
            folds choose. No photo has chosen the caption that its score is of.
    """

    captioner: Captioner
    start_weight: float
    captions: Mapping[int | str, str]
    cross_fitted_captions: Mapping[int | str, str]


def best_between(
    start: Captioner,
    trained: Captioner,
    groups: Sequence[Sequence[Record]],
    *,
    start_captions: Mapping[int | str, str],
    tokenizer_name: TokenizerName,
    model_name: str = "the start",
    start_weights: Sequence[float] = START_WEIGHTS,
) -> Choice:
    """Choose the best captioner between a trained one and the one that it started from.

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
    captioners, captions, scores = [], [], []
    for start_weight in start_weights:
        captioner, candidate_captions = trained, start_captions
        if start_weight == 1:
            captioner = start
        elif start_weight:
            captioner = interpolate(start_parameters, trained, start_weight)
        if start_weight < 1:
            candidate_captions = split_captions(captioner, records)
        report = cider_report(captioner, candidate_captions, records, tokenizer_name)
        captioners.append(captioner)
        captions.append(candidate_captions)
        scores.append(report.images["CIDEr"])
    group_ids = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    folds = np.arange(len(records)) % FOLDS
    choose = partial(_best_candidate, has_start=start_weights[-1] == 1)
    best = choose(np.array(scores), group_ids)
    cross_fitted_captions: dict[int | str, str] = {}
    for fold in range(FOLDS):
        others = folds != fold
        candidate = choose(np.array(scores)[:, others], group_ids[others])
        for index in np.flatnonzero(~others):
            image_id = records[index].image_id
            cross_fitted_captions[image_id] = captions[candidate][image_id]
    return Choice(captioners[best], start_weights[best], captions[best], cross_fitted_captions)


def _best_candidate(
    scores: Float[np.ndarray, "candidates images"],
    group_ids: Int[np.ndarray, " images"],
    has_start: bool,
) -> int:
    """The candidate with the best scores; the last, the start, if it is as good."""
    scores = scores.copy()
    for group_id in np.unique(group_ids):
        group_scores = scores[:, group_ids == group_id]
        scores[:, group_ids == group_id] /= group_scores.mean(axis=1).max() or 1.0
    if not scores.any():
        return 0
    best = int(scores.mean(axis=1).argmax())
    if has_start and scores.shape[1] > 1:
        gains = scores[best] - scores[-1]
        if gains.mean() <= gains.std(ddof=1) / len(gains) ** 0.5:
            return len(scores) - 1
    return best


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
