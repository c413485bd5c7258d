import random
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from captioning.captioner import load
from captioning.captioner.calibration import BIAS, CAPTION_FEATURES, WORD_FEATURES
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.evaluation.review_examples import NounSwaps, review_examples
from captioning.evaluation.review_fit import LabelledFeatures, fit_review, separation
from captioning.shapes import write_shapes

WORDS = ["a", "an", "man", "woman", "dog", "dogs", "cat", "cats", "elephant", "on", "sofa", "the"]


def test_a_noun_becomes_another_of_its_kind_that_nobody_names() -> None:
    swaps = NounSwaps(WORDS)
    references = [["a", "dog", "on", "the", "sofa"], ["a", "cat", "sleeps"]]
    drawn = {swaps.wrong_noun(references[0], references, random.Random(n)) for n in range(9)}
    [wrong_noun] = drawn
    assert wrong_noun is not None
    assert wrong_noun.caption == ("an", "elephant", "on", "the", "sofa")
    assert (wrong_noun.place, wrong_noun.true_place) == (1, 1)


def test_plurals_stay_plural_and_persons_change_only_to_others() -> None:
    swaps, draw = NounSwaps(WORDS), random.Random(0)
    wrong_noun = swaps.wrong_noun(["dogs"], [["dogs"]], draw)
    assert wrong_noun is not None
    assert wrong_noun.caption == ("cats",)
    assert swaps.wrong_noun(["a", "man"], [["a", "man"], ["a", "woman"]], draw) is None


def test_the_other_caption_is_of_another_photo_and_as_long() -> None:
    captions = [("a dog",), ("a man", "the cat on a sofa"), ("a woman on a sofa",)]
    records = [Record(Path(f"{n}.jpg"), n, texts) for n, texts in enumerate(captions)]
    examples = review_examples(records, Vocabulary(WORDS))
    assert len(examples) == 3
    for example in examples:
        assert len(example.other_caption) == len(example.caption)
        assert " ".join(example.other_caption) not in example.record.captions


def test_separation_counts_pairs_and_what_lies_below_nearly_all_right_ones() -> None:
    area, found = separation(np.array([3.0, 4.0]), np.array([1.0, 3.5]))
    assert (area, found) == (0.75, 0.5)


def test_the_fit_finds_the_weights_of_many_examples() -> None:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(40_000, 3)) * 2.0 + (-1.0, 1.0, 0.0)
    is_positive = draw.random(40_000) < expit(features @ (0.8, -0.6, 0.3) + 1.0)
    count = min(is_positive.sum(), (~is_positive).sum())
    labelled = LabelledFeatures(features[is_positive][:count], features[~is_positive][:count])
    weights = labelled.fit(WORD_FEATURES, dict.fromkeys((*WORD_FEATURES, BIAS), 0.0))
    assert [weights[name] for name in WORD_FEATURES] == pytest.approx([0.8, -0.6, 0.3], abs=0.06)


@pytest.mark.integration
def test_captions_of_other_scenes_are_told_by_chances_fitted_on_half_of_them(
    tmp_path: Path,
) -> None:
    write_shapes(tmp_path, train=80, val=1, test=1, pixels=128, progress=False)
    records = Coco(tmp_path).read().records("train")
    captioner = load("shapes")
    review = fit_review(captioner, records[:40])
    assert review is not None
    assert review.caption_weights[CAPTION_FEATURES[0]] > 0
    assert captioner.calibration is None
    photos = [record.image for record in records[40:]]
    texts = [
        [record.captions[0], other.captions[0]]
        for record, other in zip(records[40:], records[41:] + records[40:41], strict=True)
    ]
    belongs = np.array(
        [
            [review.belongs for review in reviews]
            for reviews in captioner.reviews(photos, texts)
            if not isinstance(reviews, Exception)
        ]
    )
    assert separation(belongs[:, 0], belongs[:, 1])[0] > 0.9
