import json
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from captioning.captioner import export, load
from captioning.captioner.calibration import (
    FEATURES,
    FEATURES_OF_LISTS,
    LEAST_CHANCE,
    Calibration,
    confidence_features,
)
from captioning.captioner.checkpoint import CONFIG_KEY, read
from captioning.commands import main
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.tokens import FUNCTION_WORDS
from captioning.data.vocabulary import EOS, PAD, Vocabulary
from captioning.errors import InputError
from captioning.evaluation.assessment import TEMPERATURES, assess, good_captions
from captioning.evaluation.calibration_fit import ZEROS, fit_calibration
from captioning.search import BeamSearch, Decoded, DiverseBeamSearch, Sampling
from captioning.shelf import path_of

Capture = pytest.CaptureFixture[str]

HAND = Calibration(0.5, ZEROS, ZEROS | {"mean log probability": 1.0}, 0.25)


def test_a_good_caption_is_as_close_to_references_as_people() -> None:
    references = (
        ("a dog runs on grass", "a dog runs on green grass", "the dog runs on grass"),
        ("two cats sleep", "two cats sleep there", "two cats are asleep"),
        ("a red car", "one red car", "a red car parks"),
    )
    records = [Record(Path("x"), number, captions) for number, captions in enumerate(references)]
    captions: dict[int | str, str] = {0: "a dog runs on grass", 1: "a red car", 2: "a car"}
    assert good_captions(captions, records).tolist() == [True, False, False]
    assert good_captions(captions, records[2:], others=records[:2]).tolist() == [False]
    assert good_captions(captions, records[2:]).tolist() == [True]
    with pytest.raises(InputError, match="two captions"):
        good_captions({0: "a dog"}, [Record(Path("x"), 0, ("a dog",))])


def test_two_numbers_of_earlier_files_know_no_kind_of_photo() -> None:
    before = replace(HAND, named=(0.5, 1.0))
    for kind in (np.nan, 0.0, 3.0):
        assert before.chance_named("dog", 0.5, kind) == pytest.approx(1 / (1 + np.exp(-1)))


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
    version: str, tmp_path: Path, capsys: Capture
) -> None:
    means, weights = LISTS[version]
    path, search = path_of("shapes"), load("shapes").search.config
    config, tensors = read(path)
    config["calibration"] = {**asdict(HAND), "means": means, "weights": weights, "search": search}
    model = tmp_path / "listed.safetensors"
    save_file(tensors, model, {CONFIG_KEY: json.dumps(config)})
    calibration = load(model).calibration
    assert calibration is not None
    features = torch.linspace(-1, 1, len(FEATURES))
    logit = torch.tensor(HAND.bias)
    for name, mean, weight in zip(FEATURES_OF_LISTS, means, weights, strict=False):
        if name in FEATURES:
            assert calibration.means[name] == mean
            logit += weight * (features[FEATURES.index(name)] - mean)
    assert calibration.confidence(features) == pytest.approx(logit.sigmoid())
    warning = capsys.readouterr().err
    if "weigh" not in version:
        assert warning == ""
    else:
        assert "least log probability and margin" in warning


def test_a_new_word_is_as_rare_as_the_captions_have_it() -> None:
    known = [f"word{number}" for number in range(1000)]
    captions = ["word999 platypus"] * 9 + ["word999 wombat"]
    words = Vocabulary.build(captions, first_words=known)
    ids = torch.tensor([[[index, PAD]] for index in words.ids([*known[:3], "platypus", "wombat"])])
    rarest = []
    for row in ids[1:-1]:
        zeros = torch.zeros(1, 1, 2)
        decoded = Decoded(row[None], zeros, zeros[..., None], zeros[..., 0])
        logits = torch.zeros(1, 1, 2, len(words))
        features = confidence_features(decoded, logits, zeros[0, 0, :1], words)
        rarest.append(features[0, 0, FEATURES.index("rarest word")].exp().item())
    # The second most frequent word of the captions, and the third.
    assert rarest == pytest.approx([2, 3, 4, 3, 4])


def test_content_words_are_as_likely_as_the_model_finds_them() -> None:
    vocabulary = Vocabulary(["A", "dog", "on", "stairs"])
    tokens = torch.tensor([[[4, 5, 6, 7, EOS, PAD], [6, 4, EOS, PAD, PAD, PAD]]])
    probabilities = torch.tensor([0.1, 0.8, 0.3, 1e-9, 0.6, 1.0]).expand(tokens.shape)
    weights, scores = torch.zeros(*tokens.shape, 1), torch.zeros(tokens.shape[:2])
    decoded = Decoded(tokens, probabilities.log(), weights, scores)
    logits = torch.zeros(*tokens.shape, len(vocabulary))
    features = confidence_features(decoded, logits, torch.zeros(1), vocabulary)
    content, no_content = features[0, :, FEATURES.index("content words")]
    expected = (np.log(0.8 / 0.2) + np.log(LEAST_CHANCE / (1 - LEAST_CHANCE))) / 2
    assert content == pytest.approx(expected, abs=1e-4)
    assert no_content.isnan()
    calibration = replace(HAND, weights=ZEROS | {"content words": 3.0})
    confident = calibration.confidence(features)[0]
    assert confident.logit() == pytest.approx([3.0 * expected + HAND.bias, HAND.bias], abs=1e-2)


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
    assessment = assess(captioner, records, batch_size=4)
    assert [*assessment.captions.values()] == [captioner(record.image).text for record in records]
    one = TEMPERATURES.tolist().index(pytest.approx(1.0))
    caption = captioner(records[0].image)
    content = [word not in FUNCTION_WORDS for word in caption.words]
    assert assessment.word_chances[0][:, one] == pytest.approx(
        [*compress(caption.probabilities, content)], abs=1e-5
    )
    read = np.array(captioner.read(records[0].image, records[0].captions[0]).probabilities)
    top_chances = assessment.top_chances[0][: len(read), one]
    is_right = assessment.is_top_right[0][: len(read)]
    assert top_chances[is_right] == pytest.approx(read[is_right], abs=1e-5)
    assert (top_chances[~is_right] > read[~is_right]).all()
    assert 0 < is_right.sum() < len(is_right)


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


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(HAND, id="calibrated"),
        pytest.param(None, id="uncalibrated", marks=pytest.mark.integration),
    ],
)
def test_calibrate_writes_a_model_whose_reliability_evaluate_measures(
    start: Calibration | None, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    export("shapes", before, calibration=start)
    data = ["--data", str(shapes_data), "--split", "test"]
    assert main(["calibrate", str(after), "--model", str(before), *data]) == 0
    printed = capsys.readouterr().out
    assert "calibration error" in printed
    assert "temperature" in printed
    assert (tmp_path / "after-calibration.png").exists()
    assert after.stat().st_size == pytest.approx(path_of("shapes").stat().st_size, rel=0.01)
    calibration = load(after).calibration
    assert calibration is not None
    if start is not None:  # few photos change little
        assert calibration.weights == pytest.approx(start.weights, abs=0.3)
        assert calibration.bias != start.bias
    scores = tmp_path / "scores"
    assert main(["evaluate", "--model", str(after), *data, "--out", str(scores)]) == 0
    assert "calibration error" in capsys.readouterr().out
    assert (scores / "calibration.png").exists()


def test_a_confidence_is_of_the_search_that_it_was_calibrated_on(
    shapes_data: Path, tmp_path: Path, capsys: Capture
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
    command = ["caption", str(photo), "--model", str(model)]
    assert main([*command, "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["confidence"] < 1
    command += ["--beam", "1"]
    for options in (["--confidence"], ["--min-confidence", "0.1"]):
        assert main([*command, *options]) == 1
        assert "captioning calibrate --beam" in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    assert "captions have no confidence" in printed.err
    assert "confidence" not in json.loads(printed.out)


def test_a_caption_without_its_end_is_never_sure(
    shapes_data: Path, tmp_path: Path, capsys: Capture
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
