import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.captioner import Caption, Captioner, load, review_features
from captioning.captioner.calibration import (
    BIAS,
    CAPTION_FEATURES,
    WORD_FEATURES,
    Calibration,
    ReviewCalibration,
)
from captioning.captioner.review import PHOTOS_PER_PRIOR, Review, review_priors
from captioning.captioner.review_features import ALTERNATIVES
from captioning.data.tokens import FUNCTION_WORDS
from captioning.errors import InputError, PhotoError
from captioning.search.search import generable_log_probs
from tests.captioner.test_captioner import PHOTOS
from tests.fixtures import checkpoint_of

TEXTS = [["a red circle", "square"], ["a a red"], ["circle", "a square", "red"], ["a circle"]]


@pytest.fixture
def reviewer(captioner: Captioner) -> Captioner:
    """The tiny model with a calibration of reviews."""
    width = captioner.model.adapter.output_dim
    priors = torch.randn(3, width, generator=torch.Generator().manual_seed(4)).tolist()
    zeros = dict.fromkeys(("mean log probability",), 0.0)
    captioner.calibration = Calibration.from_config(
        {"temperature": 1.0, "means": zeros, "weights": zeros, "bias": 0.0}
    )
    word_weights = dict(zip((*WORD_FEATURES, BIAS), (0.1, -0.05, 0.2, 0.5), strict=True))
    caption_weights = dict(zip((*CAPTION_FEATURES, BIAS), (0.1, 0.02, 0.3), strict=True))
    review = ReviewCalibration(priors, word_weights, caption_weights)
    captioner.calibration = replace(captioner.calibration, review=review)
    return captioner


def same(one: Review, other: Review) -> bool:
    numbers = [
        [chance or 0.0 for chance in (*review.chances, review.belongs)] for review in (one, other)
    ]
    is_near: bool = numbers[0] == pytest.approx(numbers[1], rel=1e-3)
    return is_near and (one.words, one.doubtful) == (other.words, other.doubtful)


def test_captions_of_a_batch_are_reviewed_as_one_by_one(reviewer: Captioner) -> None:
    for photo, texts, reviews in zip(PHOTOS, TEXTS, reviewer.reviews(PHOTOS, TEXTS), strict=True):
        assert not isinstance(reviews, PhotoError)
        assert [
            same(reviewer.review(photo, text), review)
            for text, review in zip(texts, reviews, strict=True)
        ] == [True] * len(texts)


@torch.no_grad()
def swap_by_hand(captioner: Captioner, photo: Any, words: list[str], place: int) -> Tensor:
    """The log-odds of a caption against those with the likeliest other content words there."""
    pixels = captioner.preprocessing(photo).pixels[None]
    vectors = captioner.model.adapter(captioner.model.encode(pixels))
    vocabulary = captioner.vocabulary
    content_words = [word for word in vocabulary.words if word not in FUNCTION_WORDS]
    log_probs, place_log_probs = {}, {}
    for word in content_words:
        ids = torch.tensor([[vocabulary.ids([*words[:place], word, *words[place + 1 :]])]])
        logits, _ = captioner.model.decoder(vectors, ids[..., :-1])
        token_log_probs = generable_log_probs(logits).gather(3, ids[..., 1:, None])[0, 0, :, 0]
        log_probs[word], place_log_probs[word] = token_log_probs.sum(), token_log_probs[place]
    caption = log_probs.pop(words[place])
    likeliest = sorted(log_probs, key=lambda word: place_log_probs[word], reverse=True)
    return caption - torch.stack([log_probs[word] for word in likeliest[:ALTERNATIVES]]).logsumexp(
        0
    )


@torch.no_grad()
def test_a_chance_follows_from_the_probabilities_with_and_without_the_photo(
    reviewer: Captioner,
) -> None:
    assert reviewer.calibration is not None
    assert reviewer.calibration.review is not None
    text, calibration = "red circle", reviewer.calibration.review
    review = reviewer.review(PHOTOS[0], text, wrong_share=0.5)
    pixels = reviewer.preprocessing(PHOTOS[0]).pixels[None]
    ids = torch.tensor([[reviewer.vocabulary.encode(text)]])
    priors = torch.tensor(calibration.priors)[:, None, None]
    log_probs = []
    for vectors in (
        reviewer.model.adapter(reviewer.model.encode(pixels)),
        priors.mean(dim=0),
        *priors,
    ):
        logits, _ = reviewer.model.decoder(vectors, ids[..., :-1])
        log_probs.append(generable_log_probs(logits).gather(3, ids[..., 1:, None])[0, 0, :, 0])
    seen, blind, *others = log_probs
    weights = calibration.word_weights
    odds = math.log(3)  # of two words, one is wrong in half the captions
    for place, chance in enumerate(review.chances):
        swap = swap_by_hand(reviewer, PHOTOS[0], text.split(), place)
        features = zip(WORD_FEATURES, (seen[place], blind[place], swap), strict=True)
        log_odds = sum(weights[name] * float(value) for name, value in features) + weights[BIAS]
        assert chance == pytest.approx(1 / (1 + math.exp(-log_odds - odds)), rel=1e-3)
    marginal = torch.stack([log_prob.sum() for log_prob in others]).exp().mean().log()
    weights, ratio = calibration.caption_weights, (seen.sum() - marginal) / len(seen)
    logit = weights[CAPTION_FEATURES[0]] * ratio + weights[CAPTION_FEATURES[1]] * seen.mean()
    assert review.belongs == pytest.approx(float((logit + weights[BIAS]).sigmoid()), rel=1e-3)


def test_captions_are_reviewed_in_small_batches_with_equal_results(
    reviewer: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = list(reviewer.reviews(PHOTOS, TEXTS))
    monkeypatch.setattr(review_features, "READ_TOKENS", 1)
    for one_by_one, reviews in zip(reviewer.reviews(PHOTOS, TEXTS), at_once, strict=True):
        assert not isinstance(one_by_one, PhotoError)
        assert not isinstance(reviews, PhotoError)
        assert all(map(same, one_by_one, reviews))


def test_reviews_in_bfloat16_are_nearly_the_same(reviewer: Captioner) -> None:
    exact = reviewer.review(PHOTOS[0], "a red circle")
    reviewer.network.bfloat16 = True
    rounded = reviewer.review(PHOTOS[0], "a red circle")
    assert rounded.belongs == pytest.approx(exact.belongs, abs=0.02)
    assert rounded.belongs != exact.belongs


def test_a_calibration_of_one_prior_is_read(reviewer: Captioner) -> None:
    assert reviewer.calibration is not None
    config = asdict(reviewer.calibration)
    prior = config["review"].pop("priors")[0]
    review = Calibration.from_config(
        config | {"review": config["review"] | {"prior": prior}}
    ).review
    assert review is not None
    assert review.priors == [prior]


def test_fewer_wrong_captions_raise_the_odds_by_bayes_rule(reviewer: Captioner) -> None:
    half, tenth = (
        reviewer.review(PHOTOS[1], "a circle", wrong_share=share) for share in (0.5, 0.1)
    )
    odds = [review.belongs / (1 - review.belongs) for review in (half, tenth)]
    assert odds[1] / odds[0] == pytest.approx(9, rel=1e-3)


def test_function_words_and_unknown_words_are_not_judged(reviewer: Captioner) -> None:
    review = reviewer.review(PHOTOS[0], "A red zeppelin.", doubt=1.0)
    assert review.words == ("a", "red", "zeppelin")
    assert [chance is None for chance in review.chances] == [True, False, True]
    assert review.unknown == ("zeppelin",)
    assert review.doubtful == (1,)
    [alternatives] = review.alternatives
    assert "red" not in alternatives
    assert review.right == review.belongs * (review.chances[1] or 0)


def test_a_caption_that_is_read_has_its_review(reviewer: Captioner) -> None:
    caption = reviewer.read(PHOTOS[0], "a red circle")
    assert caption.review is not None
    assert same(caption.review, reviewer.review(PHOTOS[0], "a red circle"))
    assert caption.as_json()["review"]["belongs"] == pytest.approx(caption.review.belongs, rel=1e-3)
    [unknown] = reviewer.stream([PHOTOS[0]], texts=["a zebra"])
    assert isinstance(unknown, Caption)
    assert (unknown.text, unknown.as_json()["score"]) == ("a zebra", None)  # JSON has no infinity


def test_a_photo_that_cannot_be_read_is_named_and_the_others_are_reviewed(
    reviewer: Captioner, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.jpg"
    error, reviews = reviewer.reviews([missing, PHOTOS[0]], [["a"], ["a circle"]])
    assert isinstance(error, PhotoError)
    assert not isinstance(reviews, PhotoError)
    assert len(reviews) == 1


def test_a_file_keeps_the_calibration_of_reviews(reviewer: Captioner, tmp_path: Path) -> None:
    loaded = load(checkpoint_of(reviewer, tmp_path / "best.ckpt"))
    assert same(loaded.review(PHOTOS[0], "a circle"), reviewer.review(PHOTOS[0], "a circle"))


def test_a_model_without_a_calibration_needs_several_photos(captioner: Captioner) -> None:
    with pytest.raises(InputError, match="not calibrated for reviews"):
        captioner.review(PHOTOS[0], "a circle")
    assert len(list(captioner.reviews(PHOTOS, TEXTS))) == len(PHOTOS)


def test_of_two_photos_without_a_calibration_both_must_be_readable(
    captioner: Captioner, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.jpg"
    with pytest.raises(InputError, match="not calibrated for reviews"):
        list(captioner.reviews([PHOTOS[0], missing], [["a circle"], ["a square"]]))
    with pytest.raises(PhotoError, match=r"missing\.jpg"):
        list(captioner.reviews([missing], [["a square"]]))


def test_priors_are_the_means_of_groups_of_photos_that_look_alike() -> None:
    groups = torch.tensor([[0.0, 1.0], [5.0, 5.0]])
    vectors = groups.repeat(PHOTOS_PER_PRIOR, 1)[:, None] + torch.tensor([[-0.25], [0.25]])
    assert sorted(review_priors(vectors)) == groups.tolist()


def test_a_photo_that_looks_like_no_other_is_not_its_own_prior() -> None:
    alike = torch.rand(2 * PHOTOS_PER_PRIOR, 3, 2, generator=torch.Generator().manual_seed(0))
    vectors = torch.cat([alike, torch.full((1, 3, 2), 9.0)])
    [prior] = review_priors(vectors)
    assert prior == pytest.approx(alike.mean(dim=(0, 1)).tolist(), rel=1e-3)
    [prior] = review_priors(vectors[:1])
    assert prior == pytest.approx(vectors[0].mean(dim=0).tolist(), rel=1e-3)


def test_few_photos_have_one_prior_and_equal_ones_as_well() -> None:
    vectors = torch.rand(PHOTOS_PER_PRIOR - 1, 3, 2, generator=torch.Generator().manual_seed(0))
    [prior] = review_priors(vectors)
    assert prior == pytest.approx(vectors.mean(dim=(0, 1)).tolist(), rel=1e-3)
    assert len(review_priors(torch.ones(4 * PHOTOS_PER_PRIOR, 3, 2))) == 1


def test_a_share_of_wrong_captions_is_neither_none_nor_all(reviewer: Captioner) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        reviewer.review(PHOTOS[0], "a circle", wrong_share=0.0)
