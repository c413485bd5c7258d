"""The calibration that fits the captions of a split of photos.

Shapes: I images, S confidence features, G temperatures, D annotation width, P patterns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import logit
from torch import Tensor
from torch.nn.functional import interpolate

from captioning.captioner import Captioner
from captioning.captioner.calibration import FEATURES, LEAST, Calibration, confidence_features
from captioning.captioner.decoded_batch import PhotoView, decode_batch
from captioning.data.dataset import caption_ids, pad_captions
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName, tokenizer, tokenizer_of_scores
from captioning.data.tokens import FUNCTION_WORDS, is_english, words_of
from captioning.data.vocabulary import PAD, UNK, Vocabulary
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.captions import photos_of
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.meteor_words import stem
from captioning.metrics.scores import generated_words
from captioning.progress_bar import ProgressBar, stage
from captioning.search import Search
from captioning.search.search import generable_log_probs

TEMPERATURES = np.exp(np.linspace(-1.2, 1.2, 49))
"""The grid that the temperature is chosen from, in steps of 5 %."""

OFFSET = 0.5 / 1.0**2  # weight of the squared change of a start's bias, for all photos together,
SLOPES = 0.5 / 0.2**2  # of its standardised regression weights, and of its log temperature
SHRINKAGE = 1.5e3  # and of the weights of the kind of photo
FOLDS = 5  # each gets the kinds of its photos from the others
PATTERNS = 0.1  # weight of all patterns beside that of all photos

ZEROS = dict.fromkeys(FEATURES, 0.0)

UNCALIBRATED = Calibration(1.0, ZEROS, ZEROS, 0.0, named=(0.5, 0.0))
"""The start of a model without a calibration: its captions are equally likely to be good, and what
its words name is named by half the log-odds of their probability."""

BOUNDS = ((0, None), (None, 0), (None, None), (None, None), (0, None))
"""Of the weights of `FEATURES`: likelier words never make a caption less sure, nor does more
entropy make it surer, so that odd pictures do not profit from chance in few photos.
"""


@dataclass(frozen=True, eq=False)
class Assessed:
    """A model's captions of a split with their confidence features, and whether they are good.

    Attributes:
        captions: one per image, by image id.
        features: `FEATURES` of each caption.
        good: whether each is good.
        top_chances: of each image, for each known word of its references, the probability of the
            likeliest word in its place, at each temperature.
        is_top_right: of each image, whether those are the words of the references.
        word_chances: of each image, for each content word of its caption, the word's probability
            at each temperature; empty for captions in other languages than English.
        is_word_named: of each image, whether those words, or others of their stem, are in a
            reference.
        vectors: the mean annotation vector of each image.
        sets: the number of the data set of each image.
        search: the config of the search that found the captions.
    """

    captions: Mapping[int | str, str]
    features: Float[np.ndarray, "I S"]
    good: Bool[np.ndarray, " I"]
    top_chances: Sequence[Float[np.ndarray, "_ G"]]
    is_top_right: Sequence[Bool[np.ndarray, " _"]]
    word_chances: Sequence[Float[np.ndarray, "_ G"]]
    is_word_named: Sequence[Bool[np.ndarray, " _"]]
    vectors: Float[np.ndarray, "I D"]
    sets: Int[np.ndarray, " I"]
    search: Mapping[str, Any]

    def part(self, mask: Bool[np.ndarray, " I"]) -> "Assessed":
        """Some of the images."""
        captions = dict(compress(self.captions.items(), mask))
        columns = {field.name: getattr(self, field.name) for field in fields(self)[1:-1]}
        rows: dict[str, Any] = {
            name: column[mask] if isinstance(column, np.ndarray) else [*compress(column, mask)]
            for name, column in columns.items()
        }
        return replace(self, captions=captions, **rows)

    @property
    def equal(self) -> Float[np.ndarray, " I"]:
        """Weights of the images by which all data sets weigh the same; their mean is one."""
        counts = np.bincount(self.sets)
        return len(self.sets) / (counts[self.sets] * np.count_nonzero(counts))


def assess(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    good: Callable[[Mapping[int | str, str]], Bool[np.ndarray, " I"]] | None = None,
    batch_size: int = 32,
    features: str | Path | None = None,
    sets: Sequence[int] | None = None,
) -> Assessed:
    """Caption the images of a split, and say which captions are good by the references.

    A caption is good if its CIDEr-D against the photo's references is at least the median that
    people's captions of the data set's photos have against the photo's other references.

    Args:
        captioner: the model.
        records: the images with their references.
        search: default: the captioner's own.
        good: decides by image id which captions are good, in place of the references.
        batch_size: images per batch.
        features: a folder of cached annotations of the images, to use instead of the photos.
        sets: the number of each image's data set, if there are several.

    Raises:
        InputError: a photo cannot be read, or no photo has two references.
    """
    search = search or captioner.search
    tokenizer_name = captioner.vocabulary.tokenizer
    split = tokenizer(tokenizer_name)
    are_english = is_english(
        word for record in records for caption in record.captions for word in split(caption)
    )

    @torch.no_grad()
    def assessed_photos(photos: Sequence[PhotoView | PhotoError]) -> list[AssessedPhoto]:
        views = list(raise_errors(photos))
        batch_records = [records[view.number] for view in views]
        return _assessed_batch(captioner, views, batch_records, search, are_english)

    assessed: list[AssessedPhoto] = []
    photos = photos_of(captioner, records, features)
    with ProgressBar("evaluate", "images", total=len(records)) as progress:
        for batch in captioner.batches(photos, assessed_photos, batch_size, in_turn=search.draws):
            assessed += batch
            progress.update(len(batch))
    captions = {photo.image_id: photo.caption for photo in assessed}
    data_sets = np.array(sets or [0] * len(assessed))
    if good is not None:
        is_good = good(captions)
    else:
        is_good = np.zeros(len(assessed), dtype=bool)
        for number in np.unique(data_sets):
            in_set = data_sets == number
            records_of_set = [*compress(records, in_set)]
            is_good[in_set] = good_captions(captions, records_of_set, tokenizer_name)
    return Assessed(
        captions=captions,
        features=np.stack([photo.features for photo in assessed]),
        good=is_good,
        top_chances=[photo.top_chances for photo in assessed],
        is_top_right=[photo.is_top_right for photo in assessed],
        word_chances=[photo.word_chances for photo in assessed],
        is_word_named=[photo.is_word_named for photo in assessed],
        vectors=np.stack([photo.vector for photo in assessed]),
        sets=data_sets,
        search=search.config,
    )


@dataclass(frozen=True, eq=False)
class AssessedPhoto:
    """What `Assessed` has of one photo."""

    image_id: int | str
    caption: str
    features: Float[np.ndarray, " S"]
    top_chances: Float[np.ndarray, "_ G"]
    is_top_right: Bool[np.ndarray, " _"]
    word_chances: Float[np.ndarray, "_ G"]
    is_word_named: Bool[np.ndarray, " _"]
    vector: Float[np.ndarray, " D"]


def _assessed_batch(
    captioner: Captioner,
    views: Sequence[PhotoView],
    records: Sequence[Record],
    search: Search,
    are_english: bool,
) -> list[AssessedPhoto]:
    """The photos of a batch; `are_english` says whether their references are."""
    vocabulary = captioner.vocabulary
    batch = decode_batch(captioner, views, search, logits=True, most=1)
    assert batch.logits is not None
    unknown_kinds = batch.annotations.new_full((len(records),), torch.nan)
    features = confidence_features(
        batch.captions, batch.logits, unknown_kinds, vocabulary.frequency_ranks
    )[:, 0].cpu()
    vectors = batch.annotations.float().mean(dim=1).cpu()
    references = pad_captions(
        [caption_ids(record, vocabulary, torch.Generator().manual_seed(0)) for record in records]
    )[..., 1:].to(captioner.device)
    reference_logits, _ = captioner.teacher_forcing(batch.memory, references)
    tops = _top_chances(reference_logits.float(), references)
    tokens = batch.captions.tokens[:, 0]
    photos = []
    for place, record in enumerate(records):
        word_chances, is_word_named = _word_chances(
            batch.logits[place, 0], tokens[place], record, vocabulary, are_english
        )
        top_chances, is_top_right = tops[place]
        photos.append(
            AssessedPhoto(
                image_id=record.image_id,
                caption=vocabulary.text(tokens[place].tolist()),
                features=features[place].numpy(),
                top_chances=top_chances,
                is_top_right=is_top_right,
                word_chances=word_chances,
                is_word_named=is_word_named,
                vector=vectors[place].numpy(),
            )
        )
    return photos


def _word_chances(
    logits: Float[Tensor, "T V"],
    tokens: Int[Tensor, " T"],
    record: Record,
    vocabulary: Vocabulary,
    is_english: bool,
) -> tuple[Float[np.ndarray, "_ G"], Bool[np.ndarray, " _"]]:
    """`Assessed.word_chances` and `is_word_named` of a caption."""
    split = tokenizer(vocabulary.tokenizer)
    stems = {stem(word) for caption in record.captions for word in split(caption)}
    # Without a list of function words, nobody knows which words name something.
    words = vocabulary.decode(tokens.tolist()) if is_english else []
    places = [place for place, word in enumerate(words) if word not in FUNCTION_WORDS]
    index = torch.tensor(places, dtype=torch.long)
    content_logits, content_words = logits[index].float(), tokens[index][:, None]
    log_probs = [
        generable_log_probs(content_logits / float(temperature)).gather(1, content_words)
        for temperature in TEMPERATURES
    ]
    is_named = [stem(words[place]) in stems for place in places]
    return torch.cat(log_probs, dim=1).exp().cpu().numpy(), np.array(is_named, dtype=bool)


def _top_chances(
    logits: Float[Tensor, "B N T V"], references: Int[Tensor, "B N T"]
) -> list[tuple[Float[np.ndarray, "_ G"], Bool[np.ndarray, " _"]]]:
    """`Assessed.top_chances` and `is_top_right` of each photo's references."""
    is_word = (references != PAD) & (references != UNK)
    word_logits, counts = logits[is_word], is_word.sum(dim=(1, 2)).tolist()
    chances = [
        generable_log_probs(word_logits / float(temperature)).amax(dim=1).exp()
        for temperature in TEMPERATURES
    ]
    is_right = generable_log_probs(word_logits).argmax(dim=1) == references[is_word]
    parts = torch.stack(chances, dim=1).cpu().split(counts), is_right.cpu().split(counts)
    return [(tops.numpy(), rights.numpy()) for tops, rights in zip(*parts, strict=True)]


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
    split = tokenizer_of_scores(tokenizer)
    all_records = (*records, *others)
    references = [
        [words_of(split(caption)) for caption in record.captions] for record in all_records
    ]
    frequencies = DocumentFrequencies.of(references)
    several = [captions_of_photo for captions_of_photo in references if len(captions_of_photo) > 1]
    if not several:
        raise InputError("no photo has two captions, whose scores decide which are good; add some")
    people, remaining = [], []  # each caption of people, and the other captions of its photo
    for captions_of_photo in several:
        for place, caption in enumerate(captions_of_photo):
            people.append(caption)
            remaining.append(captions_of_photo[:place] + captions_of_photo[place + 1 :])
    of_people = cider_scores(people, remaining, frequencies).images["CIDEr"]
    generated = [generated_words(captions[record.image_id], tokenizer) for record in records]
    of_model = cider_scores(generated, references[: len(generated)], frequencies).images["CIDEr"]
    is_good: Bool[np.ndarray, " I"] = of_model >= np.median(of_people)
    return is_good


@torch.no_grad()
def pattern_vectors(captioner: Captioner, count: int = 100) -> Float[np.ndarray, "P D"]:
    """The mean annotation vectors of pictures of nothing: random blocks, stripes, gradients, noise.

    Of these a model should be unsure (outlier exposure, Hendrycks et al. 2019).
    """
    size, generator = captioner.preprocessing.size, torch.Generator().manual_seed(0)
    vectors = []
    for number in range(count):
        rows, columns = (size ** torch.rand(2, generator=generator)).int().tolist()
        blocks = torch.randint(256, (1, 3, rows, columns), generator=generator).float()
        mode = "bilinear" if number % 2 else "nearest"
        pixels = interpolate(blocks, (size, size), mode=mode).to(torch.uint8)
        vectors.append(captioner.encode(pixels.to(captioner.device)).float().mean(dim=1).cpu())
    return torch.cat(vectors).numpy()


def calibrated(
    assessed: Assessed,
    start: Calibration | None = None,
    patterns: Float[np.ndarray, "P D"] | None = None,
) -> Calibration:
    """The calibration that fits these captions best.

    The temperature makes the likeliest word as probable as it is often right, by the log loss of
    that (all words' cross-entropy would leave it too sure or too unsure); the confidence is a
    logistic regression on the captions' features.

    Args:
        assessed: the captions.
        start: the model's own calibration, or that of the model that it was trained from. All is
            shrunk towards it: fewer than about 100 photos move little but the bias. None shrinks
            towards the share of good captions.
        patterns: `pattern_vectors`. Where there are several data sets, the kind of photo that is
            like none of their photos counts as one whose captions are never good.
    """
    start, count = start or UNCALIBRATED, len(assessed.good)
    if not count:
        return start
    kinds, photo = _kinds(assessed, start, patterns)
    features = np.column_stack([assessed.features[:, :-1], np.nan_to_num(kinds)])
    means = features.mean(axis=0)
    scales = np.maximum(features.std(axis=0), 1e-6)
    standard = (features - means) / scales
    start_means, start_weights = (
        np.array([values[name] for name in FEATURES]) for values in (start.means, start.weights)
    )
    moved = (means - start_means) @ start_weights
    first = np.append(start_weights * scales, start.bias + moved)
    *weights, bias = _regression(standard, assessed.good, assessed.equal, first, count, BOUNDS)

    p = np.concatenate(assessed.top_chances).clip(1e-6, 1 - 1e-6)
    right = np.concatenate(assessed.is_top_right)[:, None]
    shares = np.repeat(assessed.equal, [*map(len, assessed.is_top_right)])
    losses = shares @ np.where(right, -np.log(p), -np.log1p(-p)) / max(shares.sum(), 1)
    changes = np.log(TEMPERATURES / start.temperature)
    best = int((losses + SLOPES / max(len(right), 1) * changes**2).argmin())

    chance: tuple[float, ...] = ()
    counts = [*map(len, assessed.is_word_named)]
    if any(counts):
        slope, intercept, of_kind = (*(start.named or UNCALIBRATED.named), 0.0)[:3]
        if of_kind:
            intercept += of_kind * (means[-1] - start_means[-1])
        odds = logit(np.concatenate(assessed.word_chances)[:, best].clip(LEAST, 1 - LEAST))
        of_words = np.column_stack([odds, np.repeat(standard[:, -1], counts)])
        slope, of_kind, intercept = _regression(
            of_words,
            np.concatenate(assessed.is_word_named),
            np.repeat(assessed.equal, counts),
            np.array([slope, of_kind * scales[-1], intercept]),
            count,
            [(0, None), (0, None)],
        )
        chance = slope, intercept, of_kind / scales[-1]
    return Calibration(
        temperature=float(TEMPERATURES[best]),
        means=dict(zip(FEATURES, means.tolist(), strict=True)),
        weights=dict(zip(FEATURES, (np.array(weights) / scales).tolist(), strict=True)),
        bias=float(bias),
        photo=photo,
        named=tuple(map(float, chance)),
        search=assessed.search,
    )


def _regression(
    features: Float[np.ndarray, "n S"],
    targets: Bool[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    first: Float[np.ndarray, " _"],
    count: int,
    bounds: Sequence[tuple[Any, Any]],
) -> list[float]:
    """The weights of a logistic regression within bounds, and its bias.

    Both are near `first`, unless many photos, `count`, say otherwise.
    """
    penalty = np.append(np.full(len(first) - 1, SLOPES), OFFSET) / count

    def loss(parameters: Float[np.ndarray, " _"]) -> float:
        logits = features @ parameters[:-1] + parameters[-1]
        cross_entropy = np.logaddexp(0.0, logits) - targets * logits
        return float(
            np.average(cross_entropy, weights=weights) + penalty @ (parameters - first) ** 2
        )

    found = minimize(loss, first, method="L-BFGS-B", bounds=[*bounds, (None, None)]).x
    return [float(each) for each in found]


def _kinds(
    assessed: Assessed, start: Calibration, patterns: Float[np.ndarray, "P D"] | None
) -> tuple[Float[np.ndarray, " I"], Sequence[float]]:
    """How good captions are in the data set whose photos look like each, and `Calibration.photo`.

    A ridge regression from the mean annotation vector, shrunk towards the start's; of one data set
    it is the start's. A photo's own data set is left to the photos of other folds.
    """
    count = len(assessed.good)
    if len(np.unique(assessed.sets)) < 2:
        kinds = start.kind(torch.from_numpy(assessed.vectors)[:, None]).numpy()
        return kinds, start.photo
    goods = np.array([assessed.good[assessed.sets == each].mean() for each in assessed.sets])
    vectors = assessed.vectors.astype(np.float64)
    means = vectors.mean(axis=0)
    # One scale for all elements: a single one may hardly vary in few photos.
    scale = max(float(vectors.var(axis=0).mean() ** 0.5), 1e-6)
    if patterns is not None:
        vectors = np.concatenate([vectors, patterns])
    some = len(vectors) - count
    mean = float(np.average(goods, weights=assessed.equal))
    *before, bias = start.photo or (*np.zeros(len(means)), mean)
    first = vectors @ before + bias
    standard = (vectors - means) / scale
    targets = np.append(goods, np.zeros(some)) - first
    of_patterns = np.full(some, PATTERNS * count / max(some, 1))
    shares = np.append(assessed.equal, of_patterns)

    def weights(own: Bool[np.ndarray, " _"]) -> Float[np.ndarray, " D"]:
        weighted = shares[own] * standard[own].T
        ridge = SHRINKAGE * np.eye(len(weighted))
        return np.linalg.solve(weighted @ standard[own] + ridge, weighted @ targets[own])

    folds = np.arange(len(targets)) // 2 % FOLDS
    kinds = first.copy()
    for fold in range(FOLDS):
        kinds[folds == fold] += standard[folds == fold] @ weights(folds != fold)
    change = weights(folds >= 0) / scale
    return kinds[:count], (*(before + change).tolist(), bias - float(means @ change))
