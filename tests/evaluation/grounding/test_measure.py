import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Coco
from captioning.data.records import ImageObject, Phrase, Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.evaluation.grounding import (
    GroundingReport,
    Lexicon,
    Mention,
    ground,
    ground_maps,
    map_table,
    table,
)
from captioning.evaluation.grounding.estimates import AT_RANDOM, ATTENDED, FALL_TIMES, PROBABILITY
from captioning.evaluation.grounding.looks import GAUSSIAN, MODEL, RANDOM, UNIFORM
from captioning.maps import head_names
from captioning.models import AdditiveAttention, LSTMDecoder, Model, TransformerDecoder

KINDS = Lexicon({kind: [kind] for kind in ("circle", "square", "triangle", "star", "cross")})


@pytest.fixture
def record(shapes_records: list[Record]) -> Record:
    """A photo of 48 x 48 pixels with a circle in its left half, which people call a circle."""
    thing = ImageObject("circle", (0.0, 0.0, 24.0, 48.0), [[0, 0, 24, 0, 24, 48, 0, 48]])
    return Record(shapes_records[0].image, 7, ("a red circle",), (thing,))


def grounded(captioner: Captioner, record: Record, caption: str) -> GroundingReport:
    return ground(captioner, [record], {record.image_id: caption}, KINDS)


def test_looks_are_where_the_search_looked(captioner: Captioner, record: Record) -> None:
    [caption] = captioner([record.image])
    lexicon = Lexicon({"circle": captioner.vocabulary.words})
    looks = ground(captioner, [record], {7: caption.text}, lexicon).looks
    assert [look.mention.name for look in looks] == list(caption.words)
    for look in looks:
        expected = caption.map()[look.mention.start]
        np.testing.assert_allclose(look.weights, expected.numpy(), atol=1e-5)
        assert (look.crop, look.size) == (caption.crop, caption.size)


def test_a_mention_of_several_words_has_their_mean_attention(
    captioner: Captioner, record: Record
) -> None:
    lexicon = Lexicon({"circle": ["red circle"]})
    [whole] = ground(captioner, [record], {7: "a red circle"}, lexicon).looks
    single = Lexicon({"circle": ["circle", "red"]})
    red, circle = ground(captioner, [record], {7: "a red circle"}, single).looks
    np.testing.assert_allclose(whole.weights, (red.weights + circle.weights) / 2)
    assert whole.drops is not None
    assert red.drops is not None
    assert circle.drops is not None
    product = red.drops.probability * circle.drops.probability
    assert whole.drops.probability == pytest.approx(product)


def test_uniform_attention_scores_as_the_uniform_baseline(
    captioner: Captioner, record: Record
) -> None:
    assert isinstance(captioner.model.decoder, LSTMDecoder)
    assert isinstance(captioner.model.decoder.attention, AdditiveAttention)
    torch.nn.init.zeros_(captioner.model.decoder.attention.energy.weight)
    [look] = ground(captioner, [record], {7: "a circle"}, KINDS, map_name="attention").looks
    assert look.scores[MODEL] == pytest.approx(look.scores[UNIFORM])
    assert look.scores[MODEL]["mass in box"] == pytest.approx(0.5)


def test_what_is_neither_annotated_nor_named_by_people_is_hallucinated(
    captioner: Captioner, record: Record
) -> None:
    # By hand: of four names, both squares name nothing; of two captions, one has such a name.
    other = dataclasses.replace(record, image_id=8, captions=("a circle", "a star"), objects=())
    captions = {7: "a square circle square", 8: "a circle"}
    report = ground(captioner, [record, other], captions, KINDS)
    assert {name: found.value for name, found in report.hallucination.items()} == {
        "CHAIR-i": 2 / 4,
        "CHAIR-s": 1 / 2,
    }
    assert dict(report.absent) == {"square": 2}
    assert [(look.image_id, look.mention.name) for look in report.looks] == [(7, "circle")]


def test_an_object_beyond_the_crop_that_nobody_names_is_hallucinated(
    captioner: Captioner, record: Record
) -> None:
    beyond = dataclasses.replace(record.objects[0], box=(48.0, 0.0, 9.0, 9.0), mask=None)
    unnamed = dataclasses.replace(record, captions=("a shape",), objects=(beyond,))
    report = grounded(captioner, unnamed, "a circle")
    assert not report.looks
    assert dict(report.absent) == {"circle": 1}


def test_batches_give_the_same_as_images_one_by_one(
    captioner: Captioner, shapes_data: Path
) -> None:
    records = Coco(shapes_data).read("train")
    captions = {record.image_id: "a red circle a square" for record in records}
    captions[records[0].image_id] = "square a circle a circle"
    reports = [ground(captioner, records, captions, batch_size=size) for size in (1, 6)]
    alone, together = (report.as_json() for report in reports)
    assert [entry["word"] for entry in alone["mentions"]] == [
        entry["word"] for entry in together["mentions"]
    ]
    one, other = (report.summary for report in reports)
    # A quotient of two falls, each of which is compared below: its error is theirs over the fall.
    assert one.pop(FALL_TIMES) == pytest.approx(other.pop(FALL_TIMES), abs=1e-4)
    assert one == pytest.approx(other, abs=1e-5)


def test_occlusion_drops_are_part_of_the_report(captioner: Captioner, record: Record) -> None:
    report = grounded(captioner, record, "a red circle")
    assert 0 < report.summary[PROBABILITY] <= 1
    assert {ATTENDED, AT_RANDOM} <= report.summary.keys()


def test_an_ensemble_of_different_grids_is_grounded_without_occlusion(
    captioner: Captioner, record: Record
) -> None:
    finer = Captioner(captioner.model, captioner.vocabulary, Preprocessing(64))
    both = ensemble([captioner, finer], ["coarse", "fine"])
    [look] = grounded(both, record, "a circle").looks
    assert look.weights.shape == (8, 8)
    assert look.drops is None


def test_words_are_looked_up_one_by_one_whatever_tokenizer_the_model_learnt_by(
    captioner: Captioner, record: Record
) -> None:
    expected = grounded(captioner, record, "a red's circle").looks
    captioner.vocabulary = Vocabulary(captioner.vocabulary.words, "tweet")
    found = grounded(captioner, record, "a red's circle").looks
    assert [look.mention for look in found] == [look.mention for look in expected]
    np.testing.assert_array_equal(found[0].weights, expected[0].weights)


def test_the_report_of_captions_that_name_nothing_says_so(
    captioner: Captioner, record: Record
) -> None:
    report = grounded(captioner, record, "a red")
    assert table(report).startswith("no word names an object that is there")
    assert report.as_json()["all"] == {"mentions": 0}
    assert report.summary == {"CHAIR-s": 0, "F1_all": 0, "F1_all, Gaussian": 0}


def test_the_report_as_json_holds_no_value_that_json_lacks(
    captioner: Captioner, record: Record
) -> None:
    unmasked = dataclasses.replace(record.objects[0], mask=None)
    report = grounded(captioner, dataclasses.replace(record, objects=(unmasked,)), "a circle")
    text = json.dumps(report.as_json(), allow_nan=False)
    assert "mass in mask" not in text
    assert " - " in table(report)


def test_the_best_and_the_worst_look_of_an_image_are_shown_once(
    captioner: Captioner, record: Record
) -> None:
    report = grounded(captioner, record, "a circle circle circle")
    gains = [look.gain for look in report.looks]
    assert len(gains) == 3
    assert [look.gain for look in report.ranked()] == [max(gains)]
    assert [look.gain for look in report.ranked(worst=True)] == [min(gains)]


def test_a_mask_of_another_photo_is_refused_by_name(captioner: Captioner, record: Record) -> None:
    foreign = {"size": [10, 10], "counts": [50, 50]}
    wrong = dataclasses.replace(record.objects[0], mask=foreign)
    with pytest.raises(InputError, match=f"{record.image}: circle: .* 10 x 10"):
        grounded(captioner, dataclasses.replace(record, objects=(wrong,)), "a circle")


def test_an_unreadable_photo_is_refused_by_name(captioner: Captioner, record: Record) -> None:
    with pytest.raises(InputError, match=r"gone\.jpg: no such file"):
        grounded(captioner, dataclasses.replace(record, image=Path("gone.jpg")), "a circle")


def test_without_captions_the_model_reads_all_references(
    captioner: Captioner, record: Record
) -> None:
    given = dataclasses.replace(record, captions=("a circle", "a red", "red circle a square"))
    other = dataclasses.replace(record, image_id=8, captions=())
    report = ground(captioner, [given, other], None, KINDS)
    assert report.references
    found = [(look.image_id, look.caption, look.mention.start) for look in report.looks]
    assert found == [(7, 0, 1), (7, 2, 1)]
    for look, text in zip(report.looks, ("a circle", "red circle a square"), strict=True):
        [alone] = grounded(captioner, record, text).looks
        np.testing.assert_allclose(look.weights, alone.weights, atol=1e-6)
        assert look.drops is not None
        assert alone.drops is not None
        assert look.drops.attended == pytest.approx(alone.drops.attended, abs=1e-5)
    assert not report.hallucination
    assert not report.f1


def test_words_that_the_model_does_not_know_are_counted_and_not_tested(
    captioner: Captioner, record: Record
) -> None:
    lexicon = Lexicon({"circle": ["circle", "disc"]})
    given = dataclasses.replace(record, captions=("a disc a circle", "a disc"))
    report = ground(captioner, [given], None, lexicon)
    assert [look.mention.name for look in report.looks] == ["circle"]
    assert report.unknown == 2
    assert "the model lacks the word" in table(report)


def test_several_maps_are_tested_on_the_same_words(captioner: Captioner, record: Record) -> None:
    names = ["attention", "occlusion", "gradient"]
    given = dataclasses.replace(record, captions=("a circle", "a red circle"))
    reports = ground_maps(captioner, [given], None, KINDS, 16, 0, names)
    assert list(reports) == names
    for name, report in reports.items():
        alone = ground(captioner, [given], None, KINDS, map_name=name)
        assert report.map_name == alone.map_name == name
        assert [look.mention for look in report.looks] == [look.mention for look in alone.looks]
        for look, other in zip(report.looks, alone.looks, strict=True):
            np.testing.assert_allclose(look.weights, other.weights, atol=1e-6)
            assert look.drops == pytest.approx(other.drops)
            assert set(look.areas) == {MODEL, GAUSSIAN, RANDOM}
            assert not other.areas
    lines = map_table(reports).splitlines()
    assert [line.split()[0] for line in lines[1:7]] == [*names, "Gaussian", "uniform", "random"]
    assert json.dumps([report.as_json() for report in reports.values()], allow_nan=False)


def test_heads_are_tested_in_one_pass_as_each_alone(captioner: Captioner, record: Record) -> None:
    torch.manual_seed(3)
    sizes = {"width": 8, "layers": 2, "heads": 2, "inner_width": 8}
    decoder = TransformerDecoder(captioner.model.encoder.annotation_dim, 8, **sizes)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    model = Model(captioner.model.encoder, captioner.model.adapter, decoder).eval()
    captioner = Captioner(model, captioner.vocabulary, captioner.preprocessing)
    given = dataclasses.replace(record, captions=("a circle", "a red circle"))
    names = ["attention", *head_names(decoder)]
    reports = ground_maps(captioner, [given], None, KINDS, maps=names, curves=False)
    assert list(reports) == names
    for name in head_names(decoder):
        alone = ground(captioner, [given], None, KINDS, map_name=name)
        for look, other in zip(reports[name].looks, alone.looks, strict=True):
            np.testing.assert_allclose(look.weights, other.weights, atol=1e-6)
            assert look.drops == pytest.approx(other.drops)
    lines = map_table(reports).splitlines()
    assert [line.split("  ")[0].strip() for line in lines[1 : len(names) + 1]] == names


def test_the_table_of_maps_of_captions_that_name_nothing_says_so(
    captioner: Captioner, record: Record
) -> None:
    reports = ground_maps(captioner, [record], {7: "a red"}, KINDS, 16, 0, ["attention"])
    assert map_table(reports) == "no word names an object that is there"


def test_a_gain_is_the_difference_and_its_interval_that_of_paired_resamples(
    captioner: Captioner, record: Record, shapes_records: list[Record]
) -> None:
    others = [dataclasses.replace(each, captions=("a circle",)) for each in shapes_records]
    report = ground(captioner, [*others, record], None, KINDS)
    scores = report.all.scores
    gain = scores["mass in box, minus Gaussian"]
    expected = scores["mass in box"].value - scores["mass in box, Gaussian"].value
    assert gain.value == pytest.approx(expected)
    # By hand: means over images drawn again, the same for both attentions.
    looks = {look.image_id: look.scores for look in report.looks}
    gains = [each[MODEL]["mass in box"] - each[GAUSSIAN]["mass in box"] for each in looks.values()]
    drawn = np.random.default_rng(1).choice(gains, size=(20_000, len(gains)))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    assert gain.interval.low == pytest.approx(low, abs=0.02)
    assert gain.interval.high == pytest.approx(high, abs=0.02)


def test_phrases_that_name_their_objects_are_tested_by_their_last_words(
    captioner: Captioner, record: Record
) -> None:
    things = (
        ImageObject("1", (0.0, 0.0, 24.0, 48.0)),
        ImageObject("1", (30.0, 0.0, 9.0, 9.0)),
        ImageObject("2", (0.0, 0.0, 9.0, 9.0)),
    )
    phrases = ((Phrase("1", 0, 2), Phrase("7", 3, 4)), (Phrase("2", 2, 4),))
    captions = ("two circle near it", "see the red square")
    given = dataclasses.replace(record, captions=captions, objects=things, phrases=phrases)
    report = ground(captioner, [given])
    # Nobody has drawn a box around 7.
    found = [(look.mention, look.caption, len(look.place.boxes)) for look in report.looks]
    assert found == [(Mention("circle", "1", 1, 2), 0, 2), (Mention("square", "2", 3, 4), 1, 1)]
