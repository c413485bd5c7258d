"""The manner of captions, apart from their content."""

import random

from captioning.evaluation.manner import Manner

THINGS = tuple(f"thing{number}" for number in range(40))


def captions(pattern: str, count: int = 50, seed: int = 0) -> list[list[str]]:
    """Captions with random things in the place of ``X``."""
    chooser = random.Random(seed)
    return [
        [chooser.choice(THINGS) if word == "X" else word for word in pattern.split()]
        for _ in range(count)
    ]


def test_a_beginning_is_a_manner_and_things_are_not() -> None:
    manner = Manner.between(captions("photo of a X on a X"), captions("a X on a X", seed=1))
    assert str(manner) == '"photo of"'
    assert manner.is_distinct
    assert manner.has(["photo", "of", "a", "zebra"])
    assert not manner.has(["a", "zebra"])
    assert manner.content(["photo", "of", "a", "zebra"]) == ["a", "zebra"]


def test_words_that_are_left_out_are_a_manner() -> None:
    manner = Manner.between(captions("X on X"), captions("a X on a X", seed=1))
    assert (manner.pairs, manner.lacked, str(manner)) == ((), ("a",), "without a")
    assert manner.length_ratio == 3 / 5
    assert manner.has(["dog", "on", "car"])
    assert not manner.has(["a", "dog", "on", "car"])


def test_two_beginnings_are_one_manner() -> None:
    people = captions("street photo of X", 25) + captions("food photo of X", 25)
    manner = Manner.between(people, captions("a X", seed=1))
    assert str(manner) == '"food photo of", "street photo of", without a'
    assert manner.content(["street", "photo", "of", "food"]) == ["food"]
    assert all(map(manner.has, people))


def test_captions_of_one_manner_have_none() -> None:
    manner = Manner.between(captions("a X on a X"), captions("a X on a X", seed=1))
    assert not manner.is_distinct
    assert not manner.has(["a", "dog"])


def test_a_word_that_the_model_says_rather_often_is_no_manner() -> None:
    people = captions("a X on a X", 45) + captions("a X standing on a X", 5)
    model_captions = captions("a X standing on a X", 20, seed=1) + captions("a X", 30, seed=2)
    manner = Manner.between(people, model_captions)
    assert manner.content(["dog", "standing"]) == ["dog", "standing"]


def test_function_words_are_left_out_sooner_than_things() -> None:
    """Of two words that a seventh of the model's captions have, no photo explains the article."""
    people = captions("X on X", 50)
    model_captions = captions("X on the X", 7, seed=1) + captions("X on red X", 7, seed=2)
    model_captions += captions("X on X", 36, seed=3)
    assert Manner.between(people, model_captions).lacked == ("the",)
