"""Trainings that start from a model with fewer words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner, export, load
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.shapes import picture, random_scene
from captioning.training.initial import UNLIKELY, between, start_from
from captioning.training.train_cli import initial_words
from tests.training.conftest import Capture, Train


def with_words(captioner: Captioner, *words: str) -> Captioner:
    """A captioner of the same sizes, with these words after the known ones."""
    config = captioner.config
    config["vocabulary"] = [*config["vocabulary"], *words]
    config["model"]["decoder"]["vocab_size"] += len(words)
    return Captioner.from_config(config)


def of_words(captioner: Captioner, checkpoint: Path) -> list[tuple[Tensor, Tensor]]:
    """Parameters with a row for each word, and those of the start, which all others equal."""
    ours, theirs = captioner.model.state_dict(), load(checkpoint).model.state_dict()
    same = [name for name in theirs if ours[name].shape == theirs[name].shape]
    kept = ([its[name] for name in same] for its in (ours, theirs))
    torch.testing.assert_close(*kept, rtol=0, atol=0)
    found = [(ours[name], theirs[name]) for name in theirs if name not in same]
    assert found
    return found


def test_new_words_start_from_words_that_begin_alike(checkpoint: Path) -> None:
    initial = load(checkpoint)
    ours = with_words(load(checkpoint), f"{initial.vocabulary.words[0]}xy", "zzzz")
    start_from(str(checkpoint), ours)
    known = len(SPECIAL) + len(initial.vocabulary.words)
    for value, first in of_words(ours, checkpoint):
        torch.testing.assert_close(value[:known], first, rtol=0, atol=0)
        mean = first[len(SPECIAL) :].mean(dim=0)
        torch.testing.assert_close(value[known + 1], mean + (UNLIKELY if value.dim() == 1 else 0))


def test_words_to_repeat_are_of_both_trainings_as_are_spellings(checkpoint: Path) -> None:
    theirs, ours = load(checkpoint).vocabulary.repeatable, with_words(load(checkpoint), "zzzz")
    word, *_ = ours.vocabulary.words
    spellings = {"zzzz": "Zzzz", word: word.upper()}
    ours.vocabulary = Vocabulary(ours.vocabulary.words, "ptb", ["zzzz"], spellings)
    start_from(str(checkpoint), ours)
    assert Captioner.from_config(ours.config).vocabulary.spellings == spellings
    assert theirs
    assert ours.config["repeatable"] == sorted({*theirs, "zzzz"})


def test_a_word_keeps_its_rank_in_a_second_training(checkpoint: Path, tmp_path: Path) -> None:
    first = with_words(load(checkpoint), "zzzz")
    first.vocabulary = replace(first.vocabulary, ranks={"zzzz": 7})
    export(first, tmp_path / "first.safetensors")
    second = with_words(first, "yyyy")
    second.vocabulary = Vocabulary(second.vocabulary.words, ranks={"yyyy": 3})
    start_from(str(tmp_path / "first.safetensors"), second)
    assert Captioner.from_config(second.config).vocabulary.ranks == {"zzzz": 7, "yyyy": 3}


def test_a_start_with_new_words_says_what_the_model_says() -> None:
    scenes = [picture(random_scene(np.random.default_rng(seed)), 64) for seed in range(20)]
    shipped = load("shapes")
    words = [f"{word}ish" for word in shipped.vocabulary.words]  # each like a known one
    start = with_words(shipped, *words)
    start_from("shapes", start)
    assert [c.text for c in start.freeze()(scenes)] == [c.text for c in shipped(scenes)]


def test_a_captioner_between_interpolates_every_parameter(checkpoint: Path) -> None:
    start, trained = (with_words(load(checkpoint), "zzzz") for _ in range(2))
    start_from(str(checkpoint), start)
    for parameter in trained.model.parameters():
        parameter.data.add_(torch.rand_like(parameter))
    mixed = between(str(checkpoint), trained, 0.25)
    models = (each.model.parameters() for each in (start, trained, mixed))
    for first, last, found in zip(*models, strict=True):
        torch.testing.assert_close(found.data, 0.25 * first.data + 0.75 * last.data)
    assert mixed.vocabulary.words == trained.vocabulary.words


def test_with_another_tokenizer_all_words_are_new(checkpoint: Path) -> None:
    config = load(checkpoint).config
    config |= {"vocabulary": ["圆", "a"], "tokenizer": "characters"}
    config["model"]["decoder"]["vocab_size"] = len(SPECIAL) + 2
    ours = Captioner.from_config(config)
    start_from(str(checkpoint), ours)
    for value, first in of_words(ours, checkpoint):
        mean = first[len(SPECIAL) :].mean(dim=0)
        torch.testing.assert_close(value, torch.stack([*first[: len(SPECIAL)], mean, mean]))
    assert initial_words(str(checkpoint), "characters") == ()


def test_other_words_first_are_refused(checkpoint: Path) -> None:
    captioner = load(checkpoint)
    captioner.vocabulary = type(captioner.vocabulary)(captioner.vocabulary.words[::-1])
    with pytest.raises(InputError, match="are not the first ones of the vocabulary"):
        start_from(str(checkpoint), captioner)


def test_a_training_adds_the_words_of_its_captions(train_into: Train, capsys: Capture) -> None:
    few = str(train_into("few", "--data.min_count", "4") / "last.ckpt")
    words = initial_words(few)
    more = str(train_into("more", "--model.initial", few, "--data.min_count", "1") / "last.ckpt")
    assert initial_words(more)[: len(words)] == words
    assert len(initial_words(more)) > len(words)
    assert f"{len(words):,} words of last.ckpt, and" in capsys.readouterr().err
    assert initial_words(
        str(train_into("same", "--model.initial", more) / "last.ckpt")
    ) == initial_words(more)
