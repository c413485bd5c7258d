import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.captioner import Captioner
from captioning.data.readers import Coco
from captioning.data.records import ImageObject, Phrase, Record
from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport, Lexicon, Mention, ground
from captioning.evaluation.grounding.targets import ATTENDED, DROPS

TIMES_GAUSSIAN = "fall, times the Gaussian's"
KINDS = Lexicon({kind: [kind] for kind in ("circle", "square", "triangle", "star", "cross")})


@pytest.fixture
def record(shapes_records: list[Record]) -> Record:
    """A photo of 48 x 48 pixels with a circle in its left half, which people call a circle."""
    circle = ImageObject("circle", (0.0, 0.0, 24.0, 48.0), [[0, 0, 24, 0, 24, 48, 0, 48]])
    return Record(shapes_records[0].image, 7, ("a red circle",), (circle,))


def report_of(*arguments: Any, **options: Any) -> GroundingReport:
    """The report of the only map."""
    [report] = ground(*arguments, **options).values()
    return report


def grounded(captioner: Captioner, record: Record, caption: str) -> GroundingReport:
    return report_of(captioner, [record], {record.image_id: caption}, KINDS)


def test_maps_are_those_of_the_search(captioner: Captioner, record: Record) -> None:
    [caption] = captioner([record.image])
    lexicon = Lexicon({"circle": captioner.vocabulary.words})
    mentions = report_of(captioner, [record], {7: caption.text}, lexicon).mentions
    assert [mention.mention.name for mention in mentions] == list(caption.words)
    for mention in mentions:
        expected = caption.map()[mention.mention.start]
        np.testing.assert_allclose(mention.weights, expected.numpy(), atol=1e-5)
        assert mention.target.crop == caption.crop


def test_a_mention_of_several_words_has_their_mean_attention(
    captioner: Captioner, record: Record
) -> None:
    lexicon = Lexicon({"circle": ["red circle"]})
    [phrase] = report_of(captioner, [record], {7: "a red circle"}, lexicon).mentions
    single = Lexicon({"circle": ["circle", "red"]})
    red, circle = report_of(captioner, [record], {7: "a red circle"}, single).mentions
    np.testing.assert_allclose(phrase.weights, (red.weights + circle.weights) / 2)
    product = red.values["probability"] * circle.values["probability"]
    assert phrase.values["probability"] == pytest.approx(product)


def test_what_nobody_annotated_or_named_is_hallucinated(
    captioner: Captioner, record: Record
) -> None:
    # By hand: of four names, both squares name nothing; of two captions, one has such a name.
    other = dataclasses.replace(record, image_id=8, captions=("a circle", "a star"), objects=())
    captions = {7: "a square circle square", 8: "a circle"}
    report = report_of(captioner, [record, other], captions, KINDS)
    assert {name: estimate.value for name, estimate in report.hallucination.items()} == {
        "CHAIR-i": 2 / 4,
        "CHAIR-s": 1 / 2,
    }
    assert report.as_json()["hallucination"]["words"] == {"square": 2}
    assert [(mention.image_id, mention.mention.name) for mention in report.mentions] == [
        (7, "circle")
    ]


def test_batches_give_the_same_as_images_one_by_one(
    captioner: Captioner, shapes_data: Path
) -> None:
    records = Coco(shapes_data).read().records("train")
    captions = {record.image_id: "a red circle a square" for record in records}
    captions[records[0].image_id] = "square a circle a circle"
    reports = [report_of(captioner, records, captions, batch_size=size) for size in (1, 6)]
    alone, together = (report.as_json() for report in reports)
    assert [entry["name"] for entry in alone["mentions"]] == [
        entry["name"] for entry in together["mentions"]
    ]
    one, other = (report.summary for report in reports)
    # A quotient of two falls, each of which is compared below: its error is theirs over the fall.
    assert one.pop(TIMES_GAUSSIAN) == pytest.approx(other.pop(TIMES_GAUSSIAN), abs=1e-4)
    assert one == pytest.approx(other, abs=1e-5)


def test_a_mask_of_another_photo_is_refused_by_name(captioner: Captioner, record: Record) -> None:
    foreign = {"size": [10, 10], "counts": [50, 50]}
    masked = dataclasses.replace(record.objects[0], mask=foreign)
    with pytest.raises(InputError, match=f"{record.image}: circle"):
        grounded(captioner, dataclasses.replace(record, objects=(masked,)), "a circle")


def test_without_captions_the_model_reads_all_references(
    captioner: Captioner, record: Record
) -> None:
    several = dataclasses.replace(record, captions=("a circle", "a red", "red circle a square"))
    other = dataclasses.replace(record, image_id=8, captions=())
    report = report_of(captioner, [several, other], None, KINDS)
    assert report.references
    spans = [
        (mention.image_id, mention.caption, mention.mention.start) for mention in report.mentions
    ]
    assert spans == [(7, 0, 1), (7, 2, 1)]
    for mention, text in zip(report.mentions, ("a circle", "red circle a square"), strict=True):
        [alone] = grounded(captioner, record, text).mentions
        np.testing.assert_allclose(mention.weights, alone.weights, atol=1e-6)
        assert mention.values[ATTENDED] == pytest.approx(alone.values[ATTENDED], abs=1e-5)
    assert not report.hallucination


def test_several_maps_are_tested_on_the_same_words(captioner: Captioner, record: Record) -> None:
    names = ["attention", "occlusion", "gradient"]
    several = dataclasses.replace(record, captions=("a circle", "a red circle"))
    reports = ground(captioner, [several], None, KINDS, maps=names, curves=True)
    assert list(reports) == names
    for name, report in reports.items():
        alone = report_of(captioner, [several], None, KINDS, maps=[name])
        assert report.map_name == alone.map_name == name
        assert [mention.mention for mention in report.mentions] == [
            mention.mention for mention in alone.mentions
        ]
        for mention, other in zip(report.mentions, alone.mentions, strict=True):
            np.testing.assert_allclose(mention.weights, other.weights, atol=1e-6)
            assert [mention.values[name] for name in DROPS] == pytest.approx(
                [other.values[name] for name in DROPS]
            )
            assert {"overall", "overall, Gaussian", "overall, random"} < set(mention.values)
            assert "overall" not in other.values
    assert json.dumps([report.as_json() for report in reports.values()], allow_nan=False)


def test_phrases_are_tested_by_their_last_words(captioner: Captioner, record: Record) -> None:
    objects = (
        ImageObject("1", (0.0, 0.0, 24.0, 48.0)),
        ImageObject("1", (30.0, 0.0, 9.0, 9.0)),
        ImageObject("2", (0.0, 0.0, 9.0, 9.0)),
    )
    phrases = ((Phrase("1", 0, 2), Phrase("7", 3, 4)), (Phrase("2", 2, 4),))
    captions = ("two circle near it", "see the red square")
    linked = dataclasses.replace(record, captions=captions, objects=objects, phrases=phrases)
    report = report_of(captioner, [linked])
    # Nobody has drawn a box around 7.
    mentions = [
        (mention.mention, mention.caption, len(mention.target.boxes)) for mention in report.mentions
    ]
    assert mentions == [(Mention("circle", "1", 1, 2), 0, 2), (Mention("square", "2", 3, 4), 1, 1)]
