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
from captioning.data.records import ImageObject, Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport, Lexicon, ground, table
from captioning.evaluation.grounding.grounding_report import ATTENDED, PROBABILITY, RANDOM
from captioning.evaluation.grounding.looks import MODEL, UNIFORM
from captioning.models import AdditiveAttention, LSTMDecoder

KINDS = Lexicon({kind: [kind] for kind in ("circle", "square", "triangle", "star", "cross")})


@pytest.fixture
def record(shapes_records: list[Record]) -> Record:
    """A photo of 48 x 48 pixels with a circle in its left half, which people call a circle."""
    thing = ImageObject("circle", (0.0, 0.0, 24.0, 48.0), [[0, 0, 24, 0, 24, 48, 0, 48]])
    return Record(shapes_records[0].image, 7, ("a red circle",), (thing,))


def grounded(captioner: Captioner, record: Record, caption: str) -> GroundingReport:
    return ground(captioner, [record], {record.image_id: caption}, KINDS)


def test_looks_are_where_the_search_looked(captioner: Captioner, record: Record) -> None:
    [caption] = captioner.caption([record.image])
    lexicon = Lexicon({"circle": captioner.vocabulary.words})
    looks = ground(captioner, [record], {7: caption.text}, lexicon).looks
    assert [look.mention.name for look in looks] == list(caption.words)
    for look in looks:
        expected = caption.weights[look.mention.start]
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
    assert isinstance(captioner.decoder, LSTMDecoder)
    assert isinstance(captioner.decoder.attention, AdditiveAttention)
    torch.nn.init.zeros_(captioner.decoder.attention.energy.weight)
    [look] = grounded(captioner, record, "a circle").looks
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
    assert reports[0].summary == pytest.approx(reports[1].summary, abs=1e-5)


def test_occlusion_drops_are_part_of_the_report(captioner: Captioner, record: Record) -> None:
    report = grounded(captioner, record, "a red circle")
    assert 0 < report.summary[PROBABILITY] <= 1
    assert {ATTENDED, RANDOM} <= report.summary.keys()


def test_an_ensemble_of_different_grids_is_grounded_without_occlusion(
    captioner: Captioner, record: Record
) -> None:
    finer = Captioner(
        captioner.encoder, captioner.decoder, captioner.vocabulary, Preprocessing(64)
    ).eval()
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
    assert report.summary == {"CHAIR-s": 0}


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
    assert [look.gain for look in report.ranked_worst()] == [min(gains)]


def test_a_mask_of_another_photo_is_refused_by_name(captioner: Captioner, record: Record) -> None:
    foreign = {"size": [10, 10], "counts": [50, 50]}
    wrong = dataclasses.replace(record.objects[0], mask=foreign)
    with pytest.raises(InputError, match=f"{record.image}: circle: .* 10 x 10"):
        grounded(captioner, dataclasses.replace(record, objects=(wrong,)), "a circle")


def test_an_unreadable_photo_is_refused_by_name(captioner: Captioner, record: Record) -> None:
    with pytest.raises(InputError, match=r"gone\.jpg: no such file"):
        grounded(captioner, dataclasses.replace(record, image=Path("gone.jpg")), "a circle")
