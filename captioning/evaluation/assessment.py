"""Calibrated probabilities: how far a captioner's confidence agrees with what comes true.

Shapes: I images, S confidence features, G temperatures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.calibration import Calibration, confidence_features
from captioning.captioner.captioner import Viewed
from captioning.data.dataset import caption_ids, padded
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName, tokenizer_of_scores
from captioning.data.tokens import words_of
from captioning.data.vocabulary import PAD, UNK
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.captions import photos_of
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.scores import generated_words
from captioning.progress_bar import ProgressBar, stage
from captioning.search import Decoded, Search
from captioning.search.search import generable_log_probs

TEMPERATURES = np.exp(np.linspace(-1.2, 1.2, 49))
"""The grid that the temperature is chosen from, in steps of 5 %."""

BINS = 10  # of equal width, for the expected calibration error
PENALTY = 1e-3  # weight of the squared regression weights of standardised features
FEWEST = 5  # good captions, and others, that a regression needs at least
OFFSET = 0.5 / 1.0**2  # weight of the squared change of a start's bias, for all photos together,
SLOPES = 0.5 / 0.2**2  # and of its standardised regression weights

BOUNDS = ((0, None), (0, None), (None, 0), (0, None), (None, None))
"""Of the weights of `FEATURES`: likelier words and a larger margin never make a caption less sure,
nor does more entropy make it surer, so that odd pictures do not profit from chance in few photos.
"""


@dataclass(frozen=True, eq=False)
class Assessed:
    """A model's captions of a split with their confidence features, and whether they are good.

    Attributes:
        captions: one per image, by image id.
        features: `FEATURES` of each caption.
        good: whether each is good.
        likeliest: of each image, for each known word of its references, the probability of the
            likeliest word in its place, at each temperature.
        right: of each image, whether those are the words of the references.
    """

    captions: Mapping[int | str, str]
    features: Float[np.ndarray, "I S"]
    good: Bool[np.ndarray, " I"]
    likeliest: Sequence[Float[np.ndarray, "_ G"]]
    right: Sequence[Bool[np.ndarray, " _"]]

    def half(self, first: int) -> "Assessed":
        """Every second image, from the first one or the second one on."""
        own = slice(first, None, 2)
        captions = dict([*self.captions.items()][own])
        return Assessed(
            captions, self.features[own], self.good[own], self.likeliest[own], self.right[own]
        )


def assess(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    good: Callable[[Mapping[int | str, str]], Bool[np.ndarray, " I"]] | None = None,
    batch_size: int = 32,
    features: str | Path | None = None,
) -> Assessed:
    """Caption the images of a split, and say which captions are good by the references.

    A caption is good if its CIDEr-D against the photo's references is at least the median that
    people's captions of these photos have against the photo's other references.

    Args:
        captioner: the model.
        records: the images with their references.
        search: default: the captioner's own.
        good: decides by image id which captions are good, in place of the references.
        batch_size: images per batch.
        features: a folder of cached annotations of the images, to use instead of the photos.

    Raises:
        InputError: a photo cannot be read, or no photo has two references.
    """
    search = search or captioner.search
    words = captioner.vocabulary

    @torch.no_grad()
    def read(photos: Sequence[Viewed | PhotoError]) -> list[tuple[Any, ...]]:
        viewed = list(raise_errors(photos))
        mine = [records[each.number] for each in viewed]
        images = torch.stack([each.view.pixels for each in viewed]).to(captioner.device)
        memory = captioner.remember(captioner.encode(images))
        chosen = search.for_images(each.view.pixels.numpy().tobytes() for each in viewed)
        decoded = captioner.decode(memory, chosen)
        best = Decoded(*(part[:, :1] for part in decoded))
        logits = captioner.teacher_forcing(memory, best.tokens)[0]
        known = confidence_features(best, decoded.scores, logits)[:, 0]
        references = [caption_ids(each, words, torch.Generator().manual_seed(0)) for each in mine]
        written = padded(references)[..., 1:].to(captioner.device)
        logits, _ = captioner.teacher_forcing(memory, written)
        likeliest = _likeliest(logits.float(), written)
        texts = map(words.text, best.tokens[:, 0].tolist())
        ids = [each.image_id for each in mine]
        return list(zip(ids, texts, known.cpu().numpy(), *likeliest, strict=True))

    rows: list[tuple[Any, ...]] = []
    photos = photos_of(captioner, records, features)
    with ProgressBar("evaluate", "images", total=len(records)) as progress:
        for found in captioner.batches(photos, read, batch_size, in_turn=search.draws):
            rows += found
            progress.update(len(found))
    ids, texts, known, likeliest, right = zip(*rows, strict=True)
    captions = dict(zip(ids, texts, strict=True))
    is_good = good(captions) if good else good_captions(captions, records, words.tokenizer)
    return Assessed(captions, np.stack(known), is_good, likeliest, right)


def _likeliest(
    logits: Float[Tensor, "B N T V"], written: Int[Tensor, "B N T"]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """`Assessed.likeliest` and `right` of references."""
    real = (written != PAD) & (written != UNK)
    chosen, counts = logits[real], real.sum(dim=(1, 2)).tolist()
    tops = [generable_log_probs(chosen / float(each)).amax(dim=1).exp() for each in TEMPERATURES]
    hits = generable_log_probs(chosen).argmax(dim=1) == written[real]
    likeliest, right = torch.stack(tops, dim=1).cpu().split(counts), hits.cpu().split(counts)
    return [its.numpy() for its in likeliest], [its.numpy() for its in right]


@stage("comparing the captions with people's")
def good_captions(
    captions: Mapping[int | str, str],
    records: Sequence[Record],
    tokenizer: TokenizerName = "ptb",
    others: Sequence[Record] = (),
) -> Bool[np.ndarray, " I"]:
    """Whether each caption's CIDEr-D is at least the median of people's captions; see `assess`.

    The people's captions of other photos count too, for the median and how rare words are.
    """
    cut = tokenizer_of_scores(tokenizer)
    every = (*records, *others)
    references = [[words_of(cut(caption)) for caption in record.captions] for record in every]
    frequencies = DocumentFrequencies.of(references)
    several = [its for its in references if len(its) > 1]
    if not several:
        raise InputError("no photo has two captions, whose scores decide which are good; add some")
    ones = [one for its in several for one in its]
    rest = [its[:n] + its[n + 1 :] for its in several for n in range(len(its))]
    of_people = cider_scores(ones, rest, frequencies).images["CIDEr"]
    written = [generated_words(captions[record.image_id], tokenizer) for record in records]
    theirs = references[: len(written)]
    of_model = cider_scores(written, theirs, frequencies).images["CIDEr"]
    found: Bool[np.ndarray, " I"] = of_model >= np.median(of_people)
    return found


def calibrated(assessed: Assessed, start: Calibration | None = None) -> Calibration:
    """The calibration that fits these captions best.

    The temperature makes the likeliest word as probable as it is often right, by the log loss of
    that (all words' cross-entropy would leave it too sure or too unsure); the confidence is a
    logistic regression on the captions' features.

    Args:
        assessed: the captions.
        start: the calibration of the model that this one was trained from. The regression is
            shrunk towards it: fewer than about 100 photos move little but the bias.

    Raises:
        InputError: too few captions are good, or too few are not, and there is no start.
    """
    good, count = int(assessed.good.sum()), len(assessed.good)
    if start is None and min(good, count - good) < FEWEST:
        raise InputError(
            f"{good} of {count} captions are good; a calibration needs at least "
            f"{FEWEST} good ones and as many others; use more photos"
        )
    known = np.isfinite(assessed.features)  # one caption alone, say, has no margin
    means = np.where(known, assessed.features, 0).sum(axis=0) / known.sum(axis=0).clip(min=1)
    centred = np.where(known, assessed.features, means) - means
    scales = np.maximum(centred.std(axis=0), 1e-6)
    standard, targets = centred / scales, assessed.good.astype(np.float64)
    first: Float[np.ndarray, " _"] = np.zeros(len(scales) + 1)
    penalty = np.append(np.full(len(scales), PENALTY), 0.0)
    if start is not None:
        first = np.append(np.array(start.weights) * scales, start.bias)
        penalty = np.append(np.full(len(scales), SLOPES), OFFSET) / count

    def loss(parameters: Float[np.ndarray, " _"]) -> float:
        logits = standard @ parameters[:-1] + parameters[-1]
        cross_entropy = np.logaddexp(0.0, logits) - targets * logits
        return float(cross_entropy.mean() + penalty @ (parameters - first) ** 2)

    p = np.concatenate(assessed.likeliest).clip(1e-6, 1 - 1e-6)
    right = np.concatenate(assessed.right)[:, None]
    temperature = TEMPERATURES[np.where(right, -np.log(p), -np.log1p(-p)).sum(0).argmin()]
    *weights, bias = minimize(loss, first, method="L-BFGS-B", bounds=[*BOUNDS, (None, None)]).x
    weights = tuple((np.array(weights) / scales).tolist())
    return Calibration(float(temperature), tuple(means.tolist()), weights, float(bias))


@dataclass(frozen=True, eq=False)
class Reliability:
    """How far a model's probabilities agree with how often they come true."""

    probabilities: Float[np.ndarray, " n"]
    outcomes: Bool[np.ndarray, " n"]

    @cached_property
    def bins(self) -> list[tuple[float, float, int]]:
        """Mean probability, share that came true, and number, of each non-empty bin."""
        places = np.minimum((self.probabilities * BINS).astype(int), BINS - 1)
        masks = [places == place for place in np.unique(places)]
        p, true = self.probabilities, self.outcomes
        return [(float(p[own].mean()), float(true[own].mean()), int(own.sum())) for own in masks]

    @property
    def error(self) -> float:
        """The expected calibration error (Guo et al. 2017, eq. 3)."""
        total = len(self.outcomes)
        return sum(abs(mean - share) * count / total for mean, share, count in self.bins)

    @cached_property
    def risks(self) -> Float[np.ndarray, " n"]:
        """The share of wrong ones among the most probable 1, 2, ..., n."""
        order = np.argsort(-self.probabilities, kind="stable")
        return np.cumsum(~self.outcomes[order]) / np.arange(1, len(order) + 1)

    @property
    def areas(self) -> tuple[float, float, float]:
        """The area under the curve of risk over coverage: ours, the best, and a random order's."""
        best = Reliability(self.outcomes.astype(float), self.outcomes)
        return float(self.risks.mean()), float(best.risks.mean()), float(self.risks[-1])


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How well a captioner is calibrated on a split."""

    captions: Reliability  # of the confidence that captions are good
    words: Reliability  # of the probability that the likeliest word is the reference's

    @classmethod
    def of(cls, *parts: tuple[Assessed, Calibration]) -> "CalibrationReport":
        """The report of captions, each part of them with a calibration."""
        columns = []
        for assessed, calibration in parts:
            features = torch.from_numpy(assessed.features).double()
            nearest = int(abs(np.log(TEMPERATURES / calibration.temperature)).argmin())
            words = np.concatenate(assessed.likeliest)[:, nearest], np.concatenate(assessed.right)
            columns.append((calibration.confidence(features).numpy(), assessed.good, *words))
        confidence, good, likeliest, right = map(np.concatenate, zip(*columns, strict=True))
        return cls(Reliability(confidence, good), Reliability(likeliest, right))

    @classmethod
    def across_halves(cls, assessed: Assessed) -> "CalibrationReport":
        """The report of a calibration of each half of the photos, used on the other half."""
        first, second = assessed.half(0), assessed.half(1)
        return cls.of((second, calibrated(first)), (first, calibrated(second)))

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        ours, best, random = self.captions.areas
        return {
            "good captions": float(self.captions.outcomes.mean()),
            "mean confidence": float(self.captions.probabilities.mean()),
            "calibration error of confidence": self.captions.error,
            "calibration error of words": self.words.error,
            "area of risk over coverage": ours,
            "area of the best order": best,
            "area of a random order": random,
            "bins of confidence": self.captions.bins,
            "bins of words": self.words.bins,
        }

    def line(self) -> str:
        """The report in a line."""
        return (
            f"confidence {self.captions.probabilities.mean():.3f} for "
            f"{self.captions.outcomes.mean():.3f} good captions; calibration error "
            f"{self.captions.error:.3f} of captions, {self.words.error:.3f} of words"
        )
