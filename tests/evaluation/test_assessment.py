import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from captioning.captioner import export, load
from captioning.captioner.calibration import FEATURES, LISTED, Calibration, confidence_features
from captioning.captioner.checkpoint import KEY, read
from captioning.commands import main
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.errors import InputError
from captioning.evaluation.assessment import TEMPERATURES, Assessment, assess, good_captions
from captioning.evaluation.calibration_fit import UNCALIBRATED, ZEROS, fit_calibration
from captioning.evaluation.calibration_report import CalibrationReport, Reliability
from captioning.search import BeamSearch, Decoded, DiverseBeamSearch, Sampling
from captioning.shapes import write_shapes
from captioning.shelf import path_of

HAND = Calibration(0.5, ZEROS, ZEROS | {"mean log probability": 1.0}, 0.25)


def assessed(images: int = 4000, seed: int = 0) -> Assessment:
    """Captions that are good by a known rule, and words that come true more seldom than said."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(images, len(FEATURES)))
    odds_of_good = features[:, 0] + 0.5 * features[:, FEATURES.index("rarest word")] + 0.3
    good = random.random(images) < 1 / (1 + np.exp(-odds_of_good))
    logits = random.normal(size=(3 * images, 8)) * 2.0
    truth = np.exp(logits / 1.5)  # so the temperature is 1.5
    words = (
        random.random((3 * images, 1)) > np.cumsum(truth / truth.sum(1, keepdims=True), 1)
    ).sum(1)
    scaled = logits[:, :, None] / TEMPERATURES
    log_probs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    odds = random.normal(size=(2 * images, 1)) + np.zeros(len(TEMPERATURES))
    said = 1 / (1 + np.exp(-odds))
    named = random.random(2 * images) < 1 / (1 + np.exp(-0.5 * odds[:, 0] - 1))
    return Assessment(
        dict.fromkeys(range(images), "a caption"),
        features,
        good,
        np.split(np.exp(log_probs.max(axis=1)), images),
        np.split(logits.argmax(axis=1) == words, images),
        np.split(said, images),
        np.split(named, images),
        random.normal(size=(images, 2)),
        np.zeros(images, dtype=int),
        {},
    )


def of_two_sets(images: int = 4000, seed: int = 0) -> Assessment:
    """Photos of two data sets, which their vectors tell apart."""
    given = assessed(images, seed)
    return replace(given, data_sets=(given.vectors[:, 0] > 0).astype(int))


def test_a_calibration_finds_the_temperature_and_the_rule() -> None:
    found = fit_calibration(assessed())
    assert found.temperature == pytest.approx(1.5, rel=0.06)  # a step of the grid
    expected_weights = ZEROS | {"mean log probability": 1.0, "rarest word": 0.5}
    assert found.weights == pytest.approx(expected_weights, abs=0.1)
    assert found.named == pytest.approx((0.5, 1.0, 0.0), abs=0.1)
    assert found.photo == ()
    expected = 1 / (1 + np.exp(-1))
    assert found.chance_named("dog", 0.5, np.nan) == pytest.approx(expected, abs=0.02)
    assert found.chance_named("The", 0.5, np.nan) is found.chance_named("'s", 0.5, 1.0) is None


def test_confidence_knows_what_kind_of_photos_has_good_captions() -> None:
    given = of_two_sets()
    better = np.random.default_rng(1).random(len(given.data_sets)) < 0.5
    given = replace(given, is_good=given.is_good | (better & (given.data_sets == 1)))
    whole, *of_sets = CalibrationReport.across_halves(given)
    for report in (whole, *of_sets):
        assert report.captions.error < 0.05
        assert report.naming.error < 0.05
    assert len(of_sets) == 2


def test_a_calibration_is_unsure_of_what_is_like_no_photo() -> None:
    given = of_two_sets()
    patterns = np.random.default_rng(1).normal((0, 10), 1, (50, 2))
    before, after = fit_calibration(given), fit_calibration(given, patterns=patterns)
    of_photos, of_patterns = (torch.from_numpy(each)[:, None] for each in (given.vectors, patterns))
    assert before.kind(of_patterns).mean() > 0.5 > 0.3 > after.kind(of_patterns).mean()
    assert after.kind(of_photos).mean() == pytest.approx(given.is_good.mean(), abs=0.02)


def test_two_kinds_of_photos_with_other_naming_rates_get_both() -> None:
    given, random = of_two_sets(), np.random.default_rng(1)
    # Of one kind of photos nearly everything is named.
    rates = np.where(given.data_sets == 1, 0.8, 0.0)
    named = [
        each | (random.random(2) < rate)
        for each, rate in zip(given.is_word_named, rates, strict=True)
    ]
    good = given.is_good | (random.random(len(rates)) < rates)
    given = replace(given, is_word_named=named, is_good=good)
    for report in CalibrationReport.across_halves(given):
        assert report.naming.probabilities.mean() == pytest.approx(
            report.naming.outcomes.mean(), abs=0.05
        )
    first, second = (given.subset(given.data_sets == number) for number in (0, 1))
    one, other = (np.concatenate(part.is_word_named).mean() for part in (first, second))
    assert other > one + 0.2


def test_two_numbers_of_earlier_files_know_no_kind_of_photo() -> None:
    before = replace(HAND, named=(0.5, 1.0))
    for kind in (np.nan, 0.0, 3.0):
        assert before.chance_named("dog", 0.5, kind) == pytest.approx(1 / (1 + np.exp(-1)))


def test_a_small_data_set_sets_the_temperature_as_a_large_one() -> None:
    given, random = of_two_sets(), np.random.default_rng(1)
    right = [  # more seldom in the second set
        each & (random.random(3) < (0.7 if own else 1.0))
        for each, own in zip(given.is_top_right, given.data_sets, strict=True)
    ]
    given = replace(given, is_top_right=right)
    some = given.subset((given.data_sets == 0) | (np.arange(4000) % 5 == 0))
    temperature = fit_calibration(given).temperature
    assert fit_calibration(some).temperature == pytest.approx(temperature, rel=0.06)  # a step
    as_one = replace(some, data_sets=np.zeros_like(some.data_sets))
    assert fit_calibration(as_one).temperature < 0.88 * temperature


def test_no_photos_leave_the_start_as_it_is() -> None:
    start, none = fit_calibration(of_two_sets()), np.zeros(4000, dtype=bool)
    assert fit_calibration(assessed().subset(none), start) == start
    assert fit_calibration(assessed().subset(none)) == UNCALIBRATED


@pytest.mark.parametrize("good", [True, False])
def test_twelve_photos_of_one_outcome_make_no_others_certain(good: bool) -> None:
    few = replace(assessed(12), is_good=np.full(12, good))
    confidence = fit_calibration(few).confidence(torch.from_numpy(assessed().features))
    assert ((confidence > 0.1) & (confidence < 0.9)).all()
    assert ((confidence > 0.5) == good).all()


@pytest.mark.parametrize("of_sets", [assessed, of_two_sets])
def test_twelve_photos_move_the_confidence_in_others_little(of_sets: Callable[..., Any]) -> None:
    start, fresh = fit_calibration(of_two_sets()), of_sets(seed=100)
    before = CalibrationReport.of((fresh, start)).captions.probabilities
    moved = []
    for seed in range(8):
        few = fit_calibration(of_sets(12, seed=seed), start)
        after = CalibrationReport.of((fresh, few)).captions.probabilities
        moved.append(abs(after - before).mean())
    assert np.mean(moved) < 0.15


@pytest.mark.parametrize("images", [5, 14, 40])
def test_a_few_photos_calibrate_better_than_their_share(images: int) -> None:
    start = replace(
        fit_calibration(assessed(seed=1)), bias=-0.7
    )  # of photos with fewer good captions
    fresh, losses = assessed(seed=2), []
    features, good = torch.from_numpy(fresh.features), fresh.is_good
    for seed in range(10, 30):
        few = assessed(images, seed=seed)
        found = (fit_calibration(few, each).confidence(features).numpy() for each in (start, None))
        share = (few.is_good.sum() + 0.5) / (images + 1)
        losses.append([-np.log(np.where(good, p, 1 - p)).mean() for p in (*found, share)])
    with_start, without, constant = np.mean(losses, axis=0)
    assert with_start < without - 0.02
    assert without < constant + 0.005


def test_a_start_that_knows_kinds_of_photos_is_moved_little_by_few() -> None:
    start, given = fit_calibration(of_two_sets()), assessed()
    features = given.features.copy()
    features[:, -1] = np.nan  # the calibration itself knows the kind
    given = replace(given, features=features)
    before, after = (
        CalibrationReport.of((given, calibration)).captions
        for calibration in (start, fit_calibration(given.subset(np.arange(4000) < 14), start))
    )
    assert before.error < 0.02
    assert after.error < 0.1


def test_many_photos_calibrate_as_if_there_were_no_start() -> None:
    start = Calibration(1.0, ZEROS, ZEROS | {"mean entropy": -1.0}, -2.0)
    found, plain = fit_calibration(assessed(), start), fit_calibration(assessed())
    assert found.weights == pytest.approx(plain.weights, abs=0.05)
    assert found.bias == pytest.approx(plain.bias, abs=0.05)


def test_a_kind_of_photo_that_is_not_known_gets_no_weight() -> None:
    found = fit_calibration(assessed())
    assert found.means["kind of photo"] == 0
    assert found.weights["kind of photo"] == pytest.approx(0, abs=1e-3)


def test_calibrated_probabilities_come_true_as_often_as_they_say() -> None:
    [report] = CalibrationReport.across_halves(assessed())
    assert report.captions.error < 0.03
    assert report.words.error < 0.03
    assert len(report.captions.outcomes) == 4000
    wrong = CalibrationReport.of(
        (assessed(seed=1), Calibration(0.4, ZEROS, dict.fromkeys(FEATURES, 3.0), 0.0))
    )
    assert wrong.captions.error > 0.1
    assert wrong.words.error > 0.1


def test_the_error_and_the_risk_are_those_worked_out_by_hand() -> None:
    found = Reliability(np.array([0.15, 0.15, 0.95, 1.0]), np.array([True, False, True, False]))
    assert found.error == pytest.approx((2 * abs(0.15 - 0.5) + 2 * abs(0.975 - 0.5)) / 4)
    assert found.risks.tolist() == pytest.approx([1.0, 0.5, 1 / 3, 0.5])
    ours, best, random = found.areas
    assert ours == pytest.approx((1 + 0.5 + 1 / 3 + 0.5) / 4)
    assert best == pytest.approx((0 + 0 + 1 / 3 + 0.5) / 4)
    assert random == 0.5


def test_a_good_caption_is_as_close_to_references_as_people() -> None:
    references = (
        ("a dog runs on grass", "a dog runs on green grass", "the dog runs on grass"),
        ("two cats sleep", "two cats sleep there", "two cats are asleep"),
        ("a red car", "one red car", "a red car parks"),
    )
    records = [Record(Path("x"), number, its) for number, its in enumerate(references)]
    captions: dict[int | str, str] = {0: "a dog runs on grass", 1: "a red car", 2: "a car"}
    assert good_captions(captions, records).tolist() == [True, False, False]
    assert good_captions(captions, records[2:], others=records[:2]).tolist() == [False]
    assert good_captions(captions, records[2:]).tolist() == [True]
    with pytest.raises(InputError, match="no photo has two captions"):
        good_captions({0: "a dog"}, [Record(Path("x"), 0, ("a dog",))])


LISTS = {
    "version 0.3": ([-0.3, -1.0, 0.7, 0.1, 10.0], [1.0, 0.0, -3.0, 0.0, -0.2]),
    "version 0.4": (
        [-0.3, -1.0, 0.7, 0.1, 10.0, 5.0, 0.4],
        [1.0, 0.0, -3.0, 0.0, -0.2, 0.25, 5.0],
    ),
    "removed features that weigh something": (
        [-0.3, -1.0, 0.7, 0.1, 10.0],
        [1.0, 0.5, -3.0, 2.0, -0.2],
    ),
}
"""Means and weights as files of earlier versions list them."""


@pytest.mark.parametrize("version", LISTS)
def test_a_listed_calibration_keeps_the_weights_of_its_features(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    means, weights = LISTS[version]
    path, search = path_of("shapes"), load("shapes").search.config
    config, tensors = read(path)
    config["calibration"] = {**asdict(HAND), "means": means, "weights": weights, "search": search}
    model = tmp_path / "listed.safetensors"
    save_file(tensors, model, {KEY: json.dumps(config)})
    calibration = load(model).calibration
    assert calibration is not None
    kept = [place for place, name in enumerate(LISTED[: len(means)]) if name in FEATURES]
    assert [calibration.means[LISTED[place]] for place in kept] == [means[place] for place in kept]
    features = torch.linspace(-1, 1, len(FEATURES))
    logit = sum(
        weights[place] * (features[FEATURES.index(LISTED[place])] - means[place]) for place in kept
    )
    assert calibration.confidence(features) == pytest.approx((logit + HAND.bias).sigmoid())
    told = capsys.readouterr().err
    if "weigh" not in version:
        assert told == ""
    else:
        [line] = told.splitlines()
        assert "confidences are without least log probability and margin, which this" in line


def test_a_new_word_is_as_rare_as_the_captions_have_it() -> None:
    known = [f"word{number}" for number in range(1000)]
    captions = ["word999 platypus"] * 9 + ["word999 wombat"]
    words = Vocabulary.build(captions, first_words=known)
    ids = torch.tensor([[[index, PAD]] for index in words.ids([*known[:3], "platypus", "wombat"])])
    rarest = []
    for row in ids[1:-1]:
        zeros = torch.zeros(1, 1, 2)
        decoded, logits = (
            Decoded(row[None], zeros, zeros[..., None], zeros[..., 0]),
            zeros[..., None],
        )
        logits = logits.expand(1, 1, 2, len(words))
        features = confidence_features(decoded, logits, zeros[0, 0, :1], words.frequency_ranks)
        rarest.append(features[0, 0, FEATURES.index("rarest word")].exp().item())
    # The second most frequent word of the captions, and the third.
    assert rarest == pytest.approx([2, 3, 4, 3, 4])


def test_captions_of_a_calibrated_model_have_its_probabilities(shapes_data: Path) -> None:
    captioner = load("shapes")
    photo = Coco(shapes_data).read().records("val")[0].image
    plain = captioner(photo)
    captioner.calibration = replace(HAND, search=captioner.search.config)
    caption = captioner(photo, runners_up=2)
    assert (caption.text, caption.score) == (plain.text, plain.score)
    assert plain.confidence is None
    log_probs = [*np.log(plain.probabilities)]
    expected = 1 / (1 + np.exp(-(np.mean(log_probs) + 0.25)))
    assert caption.confidence == pytest.approx(expected, abs=0.05)  # the mean has the end, too
    # At half the temperature, what is likely is likelier.
    assert caption.probabilities[0] > plain.probabilities[0]
    read = captioner.read(photo, caption.text)
    assert read.probabilities == pytest.approx(caption.probabilities, abs=1e-5)
    for word, others in zip(caption.probabilities, caption.runners_up, strict=True):
        assert word + sum(other.probability for other in others) <= 1 + 1e-5


def test_an_assessed_caption_is_that_of_the_captioner(shapes_data: Path) -> None:
    captioner = load("shapes")
    records = Coco(shapes_data).read().records("train")
    found = assess(captioner, records, batch_size=4)
    assert [*found.captions.values()] == [captioner(record.image).text for record in records]
    one = TEMPERATURES.tolist().index(pytest.approx(1.0))
    caption = captioner(records[0].image)
    content = [word not in FUNCTION_WORDS for word in caption.words]
    assert found.word_chances[0][:, one] == pytest.approx(
        [*compress(caption.probabilities, content)], abs=1e-5
    )
    read = np.array(captioner.read(records[0].image, records[0].captions[0]).probabilities)
    likeliest, right = found.top_chances[0][: len(read), one], found.is_top_right[0][: len(read)]
    assert likeliest[right] == pytest.approx(read[right], abs=1e-5)
    assert (likeliest[~right] > read[~right]).all()
    assert 0 < right.sum() < len(right)


def test_what_people_name_is_cut_by_the_models_tokenizer(shapes_data: Path) -> None:
    captioner = load("shapes")
    words = captioner.vocabulary.words
    captioner.vocabulary = Vocabulary([f"{word}-{word}" for word in words], "wordpunct")
    record = Coco(shapes_data).read().records("val")[0]
    whole = " ".join(f"it is on the {word}-{word}" for word in words)
    [named] = assess(captioner, [replace(record, captions=(whole,) * 2)]).is_word_named
    assert named.size
    assert not named.any()  # that tokenizer cuts at hyphens
    captioner.vocabulary = Vocabulary(captioner.vocabulary.words, "ptb")
    [named] = assess(captioner, [replace(record, captions=(whole,) * 2)]).is_word_named
    assert named.size
    assert named.all()


def test_captions_in_another_language_get_no_chance_of_being_named(shapes_data: Path) -> None:
    captioner = load("shapes")
    records = Coco(shapes_data).read().records("train")
    start = replace(HAND, named=(0.5, 1.0, 0.0))
    assert fit_calibration(assess(captioner, records), start).named
    german = "ein roter Kreis neben einem Quadrat", "ein Kreis über einem Stern"
    records = [replace(record, captions=german) for record in records]
    captioner.calibration = fit_calibration(assess(captioner, records), start)
    assert captioner.calibration.named == ()
    assert captioner(records[0].image).named == ()


def test_commands_say_how_sure_a_calibrated_model_is(
    shapes_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "sure.safetensors"
    export("shapes", model, calibration=HAND)
    photos = [str(record.image) for record in Coco(shapes_data).read().records("test")]
    assert main(["caption", *photos, "--model", str(model), "--confidence"]) == 0
    sure = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert len(sure) == len(photos)
    assert all(0 < float(number) < 1 for number in sure)
    assert main(["caption", *photos, "--model", str(model), "--min-confidence", "1"]) == 0
    assert all(line.endswith("\tnot sure") for line in capsys.readouterr().out.splitlines())
    assert main(["caption", *photos, "--model", str(model), "--json"]) == 0
    assert all("confidence" in json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert main(["caption", *photos, "--model", "shapes", "--confidence"]) == 1
    assert "not calibrated" in capsys.readouterr().err
    data = ["--data", str(shapes_data), "--split", "test", "--out", str(tmp_path / "scores")]
    assert main(["evaluate", "--model", str(model), *data]) == 0
    assert "calibration error" in capsys.readouterr().out
    assert (tmp_path / "scores/calibration.png").exists()
    calibrate = ["calibrate", str(tmp_path / "new.safetensors"), "--model", str(model)]
    assert main([*calibrate, "--data", str(shapes_data), "--split", "test"]) == 0
    assert "calibration error" in capsys.readouterr().out
    calibration = load(tmp_path / "new.safetensors").calibration
    assert calibration is not None  # a few photos move the model's own
    assert calibration.weights == pytest.approx(HAND.weights, abs=0.3)
    assert calibration.bias != HAND.bias


def test_a_confidence_is_of_the_search_that_it_was_calibrated_on(
    shapes_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "sure.safetensors"
    export("shapes", model, calibration=HAND)  # as files of version 0.4, which do not say it
    captioner = load(model)
    photo, width = (
        Coco(shapes_data).read().records("test")[0].image,
        captioner.search.config["width"],
    )
    own = captioner(photo)
    assert own.confidence is not None
    narrow = captioner.search.replace(BeamSearch, width=width + 1)
    others = narrow, Sampling(), captioner.constrained(begin="a"), DiverseBeamSearch(groups=2)
    assert [captioner(photo, search).confidence for search in others] == [None] * 4
    captioner.search = narrow
    assert captioner(photo).confidence is None

    export("shapes", model, calibration=replace(HAND, search=narrow.config), search=narrow)
    assert load(model)(photo).confidence == pytest.approx(own.confidence, abs=0.1)
    command = ["caption", str(photo), "--model", str(model), "--beam", "1"]
    for options in (["--confidence"], ["--min-confidence", "0.1"]):
        assert main([*command, *options]) == 1
        assert "captioning calibrate --beam" in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    assert "captions have no confidence" in told.err
    assert "confidence" not in json.loads(told.out)


def test_a_caption_without_its_end_is_never_sure(
    shapes_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, search = tmp_path / "sure.safetensors", load("shapes").search.replace(max_length=3)
    export(
        "shapes", model, calibration=replace(HAND, bias=9.0, search=search.config), search=search
    )
    photo = Coco(shapes_data).read().records("test")[0].image
    caption = load(model)(photo)
    assert (len(caption.words), caption.confidence) == (3, None)
    command = ["caption", str(photo), "--model", str(model)]
    assert main([*command, "--confidence"]) == 0
    assert capsys.readouterr().out.startswith("none\t")
    assert main([*command, "--min-confidence", "0.01"]) == 0
    assert capsys.readouterr().out == f"{photo}\tnot sure\n"


@pytest.mark.integration
def test_calibrate_writes_a_model_with_its_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shapes(tmp_path / "scenes", train=2, val=300, test=2, progress=False)
    model = tmp_path / "sure.safetensors"
    data = ["--data", str(tmp_path / "scenes"), "--batch-size", "50"]
    assert main(["calibrate", str(model), "--model", "shapes", *data]) == 0
    assert "temperature" in capsys.readouterr().out
    assert (tmp_path / "sure-calibration.png").exists()
    assert model.stat().st_size == pytest.approx(path_of("shapes").stat().st_size, rel=0.01)
    assert load(model).calibration is not None
