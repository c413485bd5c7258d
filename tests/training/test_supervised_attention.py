import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.dataset import Batch, Seen
from captioning.data.records import ImageObject, Phrase, Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon
from captioning.training import CrossEntropy, SupervisedAttention
from captioning.training.supervised_attention import box_loss, box_shares, wanted_attention
from tests.training.conftest import learnt, loss_of, tokens_of

WHOLE, MIRRORED = (Seen((0.0, 0.0, 40.0, 40.0), is_mirrored) for is_mirrored in (False, True))
LEXICON = Lexicon({"cat": ["cat"], "dog": ["dog", "big dog"]})


def thing(name: str, *box: float) -> ImageObject:
    left, top, width, height = map(float, box)
    return ImageObject(name, (left, top, width, height))


OBJECTS = (thing("cat", 0, 0, 10, 10), thing("dog", 20, 20, 20, 20))


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(["a", "cat", "dog", "big", "and"])


def record(*captions: str, objects: tuple[ImageObject, ...] = OBJECTS) -> Record:
    return Record(Path("photo.jpg"), 1, captions, objects)


def batch_of(
    vocabulary: Vocabulary, its_record: Record, *captions: str, seen: Seen = WHOLE
) -> Batch:
    """A batch of one image, with these of its captions."""
    return Batch(torch.empty(0), tokens_of([captions], vocabulary), [its_record], [seen])


RIGHT, LEFT = (20.0, 0.0, 20.0, 20.0), (0.0, 0.0, 20.0, 20.0)


@pytest.mark.parametrize(
    ("box", "seen", "grid", "offset", "expected"),
    [
        # Regions of 10 x 10 pixels; the box covers one whole and half of its neighbour.
        ((0, 0, 15, 10), WHOLE, (4, 4), (0.0, 0.0), [2 / 3, 1 / 3, *[0] * 14]),
        ((20, 0, 5, 10), Seen(RIGHT, is_mirrored=False), (2, 2), (0.0, 0.0), [1, 0, 0, 0]),
        ((20, 0, 5, 10), Seen(RIGHT, is_mirrored=True), (2, 2), (0.0, 0.0), [0, 1, 0, 0]),
        ((20, 0, 5, 10), Seen(LEFT, is_mirrored=False), (2, 2), (0.0, 0.0), None),
        # Regions look 5 pixels further right, in mirrored ones further left.
        ((10, 0, 10, 10), WHOLE, (1, 4), (0.0, 0.5), [0.4, 0.6, 0, 0]),
        ((10, 0, 10, 10), MIRRORED, (1, 4), (0.0, 0.5), [0, 0.5, 0.5, 0]),
    ],
)
def test_shares_are_those_of_the_regions_that_a_box_covers(
    box: tuple[float, ...],
    seen: Seen,
    grid: tuple[int, int],
    offset: tuple[float, float],
    expected: list[float] | None,
) -> None:
    found = box_shares([thing("cat", *box)], seen, grid, offset)
    assert (found if found is None else found.tolist()) == pytest.approx(expected)


def test_each_word_that_names_an_object_asks_for_its_boxes(vocabulary: Vocabulary) -> None:
    captions = ("a cat and a big dog", "a dog", "a cat")
    its_record = record(*captions)
    batch = batch_of(vocabulary, its_record, captions[2], captions[0])  # a choice, in any order
    places, shares = wanted_attention(batch, vocabulary, LEXICON, (2, 2))
    assert places.tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 4], [0, 1, 5]]
    assert shares.argmax(dim=1).tolist() == [0, 0, 3, 3]
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(4))


def test_words_beyond_a_cut_caption_ask_for_nothing(vocabulary: Vocabulary) -> None:
    batch = batch_of(vocabulary, record("a cat and a big dog"), "a cat and a big dog")
    for tokens, expected in ((7, [1, 4, 5]), (6, [1]), (3, [1]), (2, [])):
        cut = batch._replace(tokens=batch.tokens[..., :tokens])
        places, _ = wanted_attention(cut, vocabulary, LEXICON, (2, 2))
        assert places[:, 2].tolist() == expected, tokens


def test_nothing_is_asked_for_what_is_not_annotated_or_not_seen(vocabulary: Vocabulary) -> None:
    without = record("a cat", objects=OBJECTS[1:])
    batch = batch_of(vocabulary, without, "a cat")
    assert wanted_attention(batch, vocabulary, LEXICON, (2, 2))[1].shape == (0, 4)
    elsewhere = Seen((20.0, 20.0, 20.0, 20.0), is_mirrored=False)
    batch = batch_of(vocabulary, record("a cat"), "a cat", seen=elsewhere)
    places, shares = wanted_attention(batch, vocabulary, LEXICON, (2, 2))
    assert len(places) == 0
    assert box_loss(torch.full((1, 1, 3, 4), 0.25), places, shares) == 0


def test_phrases_of_the_data_set_come_before_the_lexicon(vocabulary: Vocabulary) -> None:
    its_record = replace(record("a big dog and a cat"), phrases=((Phrase("cat", 0, 3),),))
    batch = batch_of(vocabulary, its_record, "a big dog and a cat")
    places, shares = wanted_attention(batch, vocabulary, LEXICON, (2, 2))
    assert places.tolist() == [[0, 0, 2]]  # its last word, the noun
    assert shares.argmax(dim=1).tolist() == [0]


def test_the_loss_is_the_cross_entropy_of_attention() -> None:
    weights = torch.tensor([[[[0.5, 0.5], [0.9, 0.1]]]])
    places, shares = torch.tensor([[0, 0, 0], [0, 0, 1]]), torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    expected = math.log(2) - math.log(0.9)
    assert box_loss(weights, places, shares).item() == pytest.approx(expected)


Named = tuple[Captioner, Tensor, Batch, Record]


@pytest.fixture
def named(captioner: Captioner, vocabulary: Vocabulary) -> Named:
    """A captioner of two objects, annotation vectors of one photo, and its captions."""
    captioner.vocabulary = vocabulary
    encoder, size = captioner.model.encoder, captioner.preprocessing.size
    rows, columns = encoder.grid(size, size)
    generator = torch.Generator().manual_seed(3)
    seen = torch.randn(1, rows * columns, encoder.annotation_dim, generator=generator)
    its_record = record("a cat and a dog")
    return captioner, seen, batch_of(vocabulary, its_record, "a cat and a dog"), its_record


def test_it_is_added_to_the_cross_entropy_of_captions(named: Named) -> None:
    captioner, seen, batch, its_record = named
    objective = SupervisedAttention(0.1, 0.5, boxes=0.3)
    total, divisor, figures = loss_of(objective, captioner, seen, batch, [its_record])
    plain = loss_of(CrossEntropy(0.1, 0.5), captioner, seen, batch)
    assert figures["boxes"] > 0.1
    torch.testing.assert_close(divisor, plain.divisor)
    torch.testing.assert_close(total, plain.total + 0.3 * 2 * figures["boxes"])  # two words


@pytest.mark.integration
@pytest.mark.parametrize("boxes", [0.0, 1.0])
def test_attention_comes_to_lie_in_the_boxes(named: Named, boxes: float) -> None:
    captioner, seen, batch, its_record = named
    objective = SupervisedAttention(0.0, 0.0, boxes)
    learnt(200, 0.05, objective, captioner, seen, batch, [its_record])
    with torch.no_grad():
        _, weights = captioner.model.decoder(seen, batch.tokens[..., :-1])
    places, shares = wanted_attention(batch, captioner.vocabulary, LEXICON, (4, 4))
    image, caption, word = places.T
    mass = (weights[image, caption, word] * (shares > 0)).sum(dim=1)
    assert (mass.min() > 0.7) == bool(boxes)  # even attention: 0.06 and 0.25


def test_data_without_boxes_or_of_another_tokenizer_are_refused(captioner: Captioner) -> None:
    objective, size = SupervisedAttention(), captioner.preprocessing
    with pytest.raises(InputError, match="no training photo has objects with boxes, from which"):
        objective.prepare([record("a cat", objects=())], captioner.vocabulary, size)
    with pytest.raises(InputError, match=r"set data\.tokenizer to ptb"):
        objective.prepare([record("a cat")], Vocabulary(["a", "cat"], "tweet"), size)
