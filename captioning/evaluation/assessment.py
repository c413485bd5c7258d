"""A model's captions of a split of photos, with what a calibration is fitted to.

Shapes: B images of a batch, N references per image, T words, V vocabulary, I images of the split, S
confidence features, G temperatures, D annotation width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.calibration import confidence_features
from captioning.captioner.decoded_batch import decode_batch
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.data.dataset import caption_ids, pad_captions
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer, tokenizer_of_scores
from captioning.data.tokens import FUNCTION_WORDS, is_english, words_of
from captioning.data.vocabulary import PAD, UNK, Vocabulary
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.captions import photos_of
from captioning.evaluation.report import Judge
from captioning.metrics.cider import DocumentFrequencies, cider_scores
from captioning.metrics.meteor_words import stem
from captioning.metrics.scores import generated_words
from captioning.progress_bar import ProgressBar, stage
from captioning.search import Search
from captioning.search.search import generable_log_probs

TEMPERATURES = np.exp(np.linspace(-1.2, 1.2, 49))
"""The grid of temperatures, in steps of 5 %."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """A model's captions of a split, with their confidence features and whether they are good.

    Attributes:
        captions: one per image, by image id.
        features: `FEATURES` of each caption.
        is_good: whether each caption is good.
        top_chances: of each image, for each word of its references that is in the vocabulary, the
            probability of the likeliest word at its position, at each temperature.
        is_top_right: of each image, whether those likeliest words are the words of the references.
        word_chances: of each image, for each content word of its caption, the probability of the
            word at each temperature; empty for captions in other languages than English.
        is_word_named: of each image, whether those words, or words with the same stem, are in a
            reference.
        vectors: the mean annotation vector of each image.
        data_sets: the number of the data set of each image.
        search: the config of the search that found the captions.
    """

    captions: Mapping[int | str, str]
    features: Float[np.ndarray, "I S"]
    is_good: Bool[np.ndarray, " I"]
    top_chances: Sequence[Float[np.ndarray, "_ G"]]
    is_top_right: Sequence[Bool[np.ndarray, " _"]]
    word_chances: Sequence[Float[np.ndarray, "_ G"]]
    is_word_named: Sequence[Bool[np.ndarray, " _"]]
    vectors: Float[np.ndarray, "I D"]
    data_sets: Int[np.ndarray, " I"]
    search: Mapping[str, Any]

    def subset(self, mask: Bool[np.ndarray, " I"]) -> "Assessment":
        """Return the assessment of the images for which the mask is true."""
        return Assessment(
            captions=dict(compress(self.captions.items(), mask)),
            features=self.features[mask],
            is_good=self.is_good[mask],
            top_chances=list(compress(self.top_chances, mask)),
            is_top_right=list(compress(self.is_top_right, mask)),
            word_chances=list(compress(self.word_chances, mask)),
            is_word_named=list(compress(self.is_word_named, mask)),
            vectors=self.vectors[mask],
            data_sets=self.data_sets[mask],
            search=self.search,
        )

    @property
    def image_weights(self) -> Float[np.ndarray, " I"]:
        """Weights of the images by which all data sets weigh the same; their mean is 1."""
        counts = np.bincount(self.data_sets)
        return len(self.data_sets) / (counts[self.data_sets] * np.count_nonzero(counts))


def assess(
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    *,
    judge: Judge | None = None,
    batch_size: int = 32,
    features: str | Path | None = None,
    data_sets: Sequence[int] | None = None,
) -> Assessment:
    """Caption the images of a split, and decide which captions are good.

    A caption is good if its CIDEr-D against the references of its photo is at least the median that
    people's captions of the data set's photos have against the other references of their photos.

    Args:
        captioner: the model.
        records: the images with their references.
        search: how words are chosen; defaults to the captioner's search.
        judge: decides which captions are good, instead of the references.
        batch_size: images per batch.
        features: a folder of cached annotations of the images, to use instead of the photos.
        data_sets: the number of each image's data set, if there are several.

    Raises:
        InputError: a photo cannot be read, or no photo has two references.
    """
    search = search or captioner.search
    search = search.for_words(captioner.vocabulary, captioner.device)
    tokenizer_name = captioner.vocabulary.tokenizer
    split = tokenizer(tokenizer_name)
    references = [caption for record in records for caption in record.captions]
    are_english = is_english(word for caption in references for word in split(caption))

    @torch.no_grad()
    def assess_photos(photos: Sequence[StreamedPhoto | PhotoError]) -> list[PhotoAssessment]:
        readable_photos = list(raise_errors(photos))
        batch_records = [records[photo.number] for photo in readable_photos]
        return _assess_batch(
            captioner,
            readable_photos,
            batch_records,
            search=search,
            references_are_english=are_english,
        )

    assessments: list[PhotoAssessment] = []
    photos = photos_of(captioner, records, features)
    with ProgressBar("evaluate", "images", total=len(records)) as progress:
        for batch in captioner.batches(photos, assess_photos, batch_size, in_turn=search.draws):
            assessments += batch
            progress.update(len(batch))
    captions = {photo.image_id: photo.caption for photo in assessments}
    set_numbers = np.array(data_sets or [0] * len(assessments))
    if judge is not None:
        is_good = judge(captions)
    else:
        is_good = np.zeros(len(assessments), dtype=bool)
        for number in np.unique(set_numbers):
            in_set = set_numbers == number
            is_good[in_set] = good_captions(
                captions, list(compress(records, in_set)), tokenizer=tokenizer_name
            )
    return Assessment(
        captions=captions,
        features=np.stack([photo.features for photo in assessments]),
        is_good=is_good,
        top_chances=[photo.top_chances for photo in assessments],
        is_top_right=[photo.is_top_right for photo in assessments],
        word_chances=[photo.word_chances for photo in assessments],
        is_word_named=[photo.is_word_named for photo in assessments],
        vectors=np.stack([photo.vector for photo in assessments]),
        data_sets=set_numbers,
        search=search.config,
    )


@dataclass(frozen=True, eq=False)
class PhotoAssessment:
    """The assessment of one photo; see `Assessment`."""

    image_id: int | str
    caption: str
    features: Float[np.ndarray, " S"]
    top_chances: Float[np.ndarray, "_ G"]
    is_top_right: Bool[np.ndarray, " _"]
    word_chances: Float[np.ndarray, "_ G"]
    is_word_named: Bool[np.ndarray, " _"]
    vector: Float[np.ndarray, " D"]


def _assess_batch(
    captioner: Captioner,
    photos: Sequence[StreamedPhoto],
    records: Sequence[Record],
    *,
    search: Search,
    references_are_english: bool,
) -> list[PhotoAssessment]:
    """Caption the photos of a batch.

    Args:
        captioner: the model.
        photos: the photos.
        records: of the photos.
        search: finds the captions.
        references_are_english: whether the language of the references is English.
    """
    vocabulary = captioner.vocabulary
    network = captioner.network
    batch = decode_batch(network, photos, search, needs_logits=True, most=1)
    assert batch.logits is not None
    unknown_kinds = batch.annotations.new_full((len(records),), torch.nan)
    features = confidence_features(batch.captions, batch.logits, unknown_kinds, vocabulary)
    features = features[:, 0].cpu()
    vectors = batch.annotations.float().mean(dim=1).cpu()
    references = pad_captions(
        [caption_ids(record, vocabulary, torch.Generator().manual_seed(0)) for record in records]
    )[..., 1:].to(network.device)
    reference_logits, _ = network.teacher_forcing(batch.memory, references)
    top_words = _top_words(reference_logits.float(), references)
    tokens = batch.captions.tokens[:, 0]
    assessments = []
    for image, record in enumerate(records):
        caption_words = ContentWords([], [])
        if references_are_english:  # other languages have no list of function words
            caption_words = _content_words(tokens[image], record, vocabulary)
        word_chances = _chances(
            batch.logits[image, 0][caption_words.positions].float(),
            tokens[image][caption_words.positions],
        )
        top_chances, is_top_right = top_words[image]
        assessments.append(
            PhotoAssessment(
                image_id=record.image_id,
                caption=vocabulary.text(tokens[image].tolist()),
                features=features[image].numpy(),
                top_chances=top_chances,
                is_top_right=is_top_right,
                word_chances=word_chances,
                is_word_named=np.array(caption_words.are_named, dtype=bool),
                vector=vectors[image].numpy(),
            )
        )
    return assessments


class ContentWords(NamedTuple):
    """The content words of a caption.

    Attributes:
        positions: in the caption.
        are_named: whether a reference has the word or another with its stem.
    """

    positions: list[int]
    are_named: list[bool]


def _content_words(
    tokens: Int[Tensor, " T"], record: Record, vocabulary: Vocabulary
) -> ContentWords:
    split = tokenizer(vocabulary.tokenizer)
    stems = {stem(word) for caption in record.captions for word in split(caption)}
    positions, are_named = [], []
    for position, word in enumerate(vocabulary.decode(tokens.tolist())):
        if word not in FUNCTION_WORDS:
            positions.append(position)
            are_named.append(stem(word) in stems)
    return ContentWords(positions, are_named)


def _chances(logits: Float[Tensor, "n V"], words: Int[Tensor, " n"]) -> Float[np.ndarray, "n G"]:
    """Compute the probability of each word at each of `TEMPERATURES`."""
    log_probs = [
        generable_log_probs(logits / float(temperature)).gather(1, words[:, None])
        for temperature in TEMPERATURES
    ]
    return torch.cat(log_probs, dim=1).exp().cpu().numpy()


def _top_words(
    logits: Float[Tensor, "B N T V"], references: Int[Tensor, "B N T"]
) -> list[tuple[Float[np.ndarray, "_ G"], Bool[np.ndarray, " _"]]]:
    """Compute `Assessment.top_chances` and `is_top_right` of the references of each photo."""
    is_word = (references != PAD) & (references != UNK)
    word_logits, counts = logits[is_word], is_word.sum(dim=(1, 2)).tolist()
    chances = [
        generable_log_probs(word_logits / float(temperature)).amax(dim=1).exp()
        for temperature in TEMPERATURES
    ]
    is_right = generable_log_probs(word_logits).argmax(dim=1) == references[is_word]
    photo_chances = torch.stack(chances, dim=1).cpu().split(counts)
    photo_is_right = is_right.cpu().split(counts)
    arrays = zip(photo_chances, photo_is_right, strict=True)
    return [(top_chances.numpy(), is_top_right.numpy()) for top_chances, is_top_right in arrays]


@stage("comparing the captions with people's")
def good_captions(
    captions: Mapping[int | str, str],
    records: Sequence[Record],
    *,
    tokenizer: TokenizerName = "ptb",
    others: Sequence[Record] = (),
) -> Bool[np.ndarray, " I"]:
    """Test whether each caption's CIDEr-D is at least the median of people's; see `assess`.

    Args:
        captions: one per image, by image id.
        records: the images with their references.
        tokenizer: of the model's vocabulary.
        others: more images, whose references count for the median and for document frequencies.

    Raises:
        InputError: no photo has two references.
    """
    split = tokenizer_of_scores(tokenizer)
    all_records = (*records, *others)
    references = [
        [words_of(split(caption)) for caption in record.captions] for record in all_records
    ]
    frequencies = DocumentFrequencies.of(references)
    several = [photo_captions for photo_captions in references if len(photo_captions) > 1]
    if not several:
        raise InputError("no photo has two captions, whose scores decide which are good; add some")
    people, other_references = [], []  # each caption of people, and the others of its photo
    for photo_captions in several:
        for index, caption in enumerate(photo_captions):
            people.append(caption)
            other_references.append(photo_captions[:index] + photo_captions[index + 1 :])
    generated = [generated_words(captions[record.image_id], tokenizer) for record in records]
    people_scores = cider_scores(people, other_references, frequencies).images["CIDEr"]
    model_references = references[: len(generated)]
    model_scores = cider_scores(generated, model_references, frequencies).images["CIDEr"]
    is_good: Bool[np.ndarray, " I"] = model_scores >= np.median(people_scores)
    return is_good
