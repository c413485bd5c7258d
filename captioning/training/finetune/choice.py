"""The choice of a model: the trained one, the one that it started from, or an earlier one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores
from captioning.training.initial import fitted_parameters, interpolate

START_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the start's parameters that are tried at the end; see `best_between`."""

CHOICE_FOLDS = 5
"""Folds of the validation photos; the candidate that the others choose captions each of them."""


@dataclass(frozen=True)
class Candidate:
    """A captioner to choose, with its captions of the photos that choose.

    Attributes:
        captioner: the captioner.
        start_weight: weight of the start's parameters in it.
        captions: its captions, by image id.
        scores: CIDEr of each caption.
    """

    captioner: Captioner
    start_weight: float
    captions: Mapping[int | str, str]
    scores: Float[np.ndarray, " images"]


@dataclass(frozen=True)
class Choice:
    """A captioner between the start and the trained one, or that of an earlier training.

    Attributes:
        captioner: the captioner.
        start_weight: weight of the start's parameters in it; 0 in that of an earlier training.
        captions: its captions of the photos that it was chosen by, by image id.
        cross_fitted_captions: each photo's caption by the candidate that is best on the other
            folds, so that no photo helps to choose the caption that it scores.
        is_earlier: whether it is the captioner of the earlier training.
        new_captions: the captions of the best captioner of this training, or of the start.
    """

    captioner: Captioner
    start_weight: float
    captions: Mapping[int | str, str]
    cross_fitted_captions: Mapping[int | str, str]
    is_earlier: bool
    new_captions: Mapping[int | str, str]


def best_between(
    start: Captioner,
    trained: Captioner,
    groups: Sequence[Sequence[Record]],
    *,
    start_captions: Mapping[int | str, str],
    tokenizer_name: TokenizerName,
    model_name: str = "the start",
    start_weights: Sequence[float] = START_WEIGHTS,
    earlier: Captioner | None = None,
    earlier_train_ids: Collection[int | str] = (),
) -> Choice:
    """Choose the best captioner between a trained one and the one that it started from.

    It is the one with the highest CIDEr or, if that is within one standard error of the start's
    (after Breiman et al. 1984, "Classification and regression trees", section 3.4.3), the start
    itself, with its own vocabulary and calibration; the trained one if all scores are 0. The
    captioner of an earlier training is kept if it is better by more than one standard error, on
    photos that it was not trained on.

    Args:
        start: the captioner that the training started from.
        trained: the trained captioner.
        groups: photos of one or more data sets. The scores of each are divided by its highest
            mean, so that a data set with high scores does not decide alone.
        start_captions: the start's captions of all photos, by image id.
        tokenizer_name: of the tokenizer that splits captions into the words of the scores.
        model_name: the name or the file of the start, for messages.
        start_weights: the weights to try; 1, the start itself, may only be the last.
        earlier: the captioner of an earlier training from the same start.
        earlier_train_ids: image ids of the photos that it was trained on.
    """
    records = [record for group in groups for record in group]

    def candidate_of(
        captioner: Captioner, start_weight: float, captions: Mapping[int | str, str] | None = None
    ) -> Candidate:
        captions = captions or split_captions(captioner, records)
        report = cider_report(captioner, captions, records, tokenizer_name)
        return Candidate(captioner, start_weight, captions, report.images["CIDEr"])

    start_parameters = fitted_parameters(start, trained, model_name).tensors
    candidates = []
    for start_weight in start_weights:
        if start_weight == 0:
            candidates.append(candidate_of(trained, 0.0))
        elif start_weight == 1:
            candidates.append(candidate_of(start, 1.0, start_captions))
        else:
            mixture = interpolate(start_parameters, trained, start_weight)
            candidates.append(candidate_of(mixture, start_weight))
    if earlier is not None:
        candidates.append(candidate_of(earlier, 0.0))
    selection = Selection(
        scores=np.array([candidate.scores for candidate in candidates]),
        group_ids=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        start_index=len(start_weights) - 1 if start_weights[-1] == 1 else None,
        earlier_index=len(start_weights) if earlier is not None else None,
        is_judge=np.array([record.image_id not in earlier_train_ids for record in records]),
    )
    best = selection.best()
    cross_fitted_captions = {
        record.image_id: candidates[index].captions[record.image_id]
        for record, index in zip(records, selection.cross_fitted(), strict=True)
    }
    return Choice(
        candidates[best].captioner,
        candidates[best].start_weight,
        candidates[best].captions,
        cross_fitted_captions,
        is_earlier=best == selection.earlier_index,
        new_captions=candidates[selection.best_new()].captions,
    )


@dataclass(frozen=True)
class Selection:
    """The selection of a candidate by the scores of images.

    Attributes:
        scores: CIDEr of each candidate's caption of each image.
        group_ids: the data set of each image.
        start_index: the candidate that is the start; None for none.
        earlier_index: the candidate of an earlier training, the last; None for none.
        is_judge: whether an image decides about the earlier candidate, which has not seen it.
    """

    scores: Float[np.ndarray, "candidates images"]
    group_ids: Int[np.ndarray, " images"]
    start_index: int | None
    earlier_index: int | None
    is_judge: Bool[np.ndarray, " images"]

    def best(self, images: Bool[np.ndarray, " images"] | None = None) -> int:
        """The best candidate by these images, by default all."""
        best = self.best_new(images)
        if self.earlier_index is None:
            return best
        judges = self.is_judge if images is None else images & self.is_judge
        scores = self._normalised(judges)
        is_better = is_clearly_better(scores[self.earlier_index], scores[best])
        return self.earlier_index if is_better else best

    def cross_fitted(self) -> list[int]:
        """For each image the candidate that images of other folds choose.

        The earlier candidate does not caption what it was trained on.
        """
        folds = np.arange(len(self.group_ids)) % CHOICE_FOLDS
        candidates = []
        for fold, is_judge in zip(folds, self.is_judge, strict=True):
            best = self.best(folds != fold)
            if best == self.earlier_index and not is_judge:
                best = self.best_new(folds != fold)
            candidates.append(best)
        return candidates

    def best_new(self, images: Bool[np.ndarray, " images"] | None = None) -> int:
        """The candidate with the best scores, without the earlier one; the start if as good."""
        if images is None:
            images = np.ones(len(self.group_ids), bool)
        scores = self._normalised(images)[: self.earlier_index]
        if not scores.any():
            return 0
        best = int(scores.mean(axis=1).argmax())
        if self.start_index is None or scores.shape[1] < 2:
            return best
        is_better = is_clearly_better(scores[best], scores[self.start_index])
        return best if is_better else self.start_index

    def _normalised(
        self, images: Bool[np.ndarray, " images"]
    ) -> Float[np.ndarray, "candidates selected"]:
        """The scores of images, divided by the best mean of their data set."""
        scores, group_ids = self.scores[:, images], self.group_ids[images]
        for group_id in np.unique(group_ids):
            group_scores = scores[:, group_ids == group_id]
            scores[:, group_ids == group_id] /= group_scores.mean(axis=1).max() or 1.0
        return scores


def is_clearly_better(
    scores: Float[np.ndarray, " images"], other_scores: Float[np.ndarray, " images"]
) -> bool:
    """Whether scores of the same images are better by more than one standard error."""
    gains = scores - other_scores
    if len(gains) < 2:
        return False
    return bool(gains.mean() > gains.std(ddof=1) / len(gains) ** 0.5)


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
