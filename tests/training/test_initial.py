"""Trainings that start from a model with fewer words."""

from copy import deepcopy
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
from captioning.training.initial import (
    UNLIKELY_LOG_PROB,
    fitted_parameters,
    interpolate,
    start_from,
    start_words,
)
from captioning.training.train_cli import TrainCLI, plain_messages
from tests.training.conftest import Capture


def with_words(captioner: Captioner, *words: str) -> Captioner:
    """A captioner of the same sizes, with further words after its own."""
    config = deepcopy(captioner.config)
    config["vocabulary"] = [*config["vocabulary"], *words]
    config["model"]["decoder"]["vocab_size"] += len(words)
    return Captioner.from_config(config)


def word_parameters(captioner: Captioner, start: Captioner) -> list[tuple[Tensor, Tensor]]:
    """Parameters with a row for each word, and those of the start; all others must be equal."""
    parameters, start_parameters = captioner.model.state_dict(), start.model.state_dict()
    pairs = []
    for name, start_parameter in start_parameters.items():
        if parameters[name].shape == start_parameter.shape:
            torch.testing.assert_close(parameters[name], start_parameter, rtol=0, atol=0)
        else:
            pairs.append((parameters[name], start_parameter))
    assert pairs
    return pairs


def test_new_words_start_from_words_that_begin_alike(checkpoint: Path) -> None:
    start = load(checkpoint)
    captioner = with_words(start, f"{start.vocabulary.words[0]}xy", "zzzz")
    start_from(start, captioner, "start")
    count = len(SPECIAL) + len(start.vocabulary.words)
    for rows, start_rows in word_parameters(captioner, start):
        torch.testing.assert_close(rows[:count], start_rows, rtol=0, atol=0)
        mean = start_rows[len(SPECIAL) :].mean(dim=0)
        torch.testing.assert_close(
            rows[count + 1], mean + (UNLIKELY_LOG_PROB if rows.dim() == 1 else 0)
        )


def test_words_to_repeat_are_of_both_trainings_as_are_spellings(checkpoint: Path) -> None:
    start = load(checkpoint)
    captioner = with_words(start, "zzzz")
    word, *_ = captioner.vocabulary.words
    spellings = {"zzzz": "Zzzz", word: word.upper()}
    start.vocabulary = replace(start.vocabulary, immediate_repeats=[word])
    captioner.vocabulary = Vocabulary(
        captioner.vocabulary.words, "ptb", ["zzzz"], spellings, immediate_repeats=["zzzz"]
    )
    start_from(start, captioner, "start")
    assert captioner.config["immediate_repeats"] == sorted({word, "zzzz"})
    assert Captioner.from_config(captioner.config).vocabulary.spellings == spellings
    assert start.vocabulary.repeatable
    assert captioner.config["repeatable"] == sorted({*start.vocabulary.repeatable, "zzzz"})


def test_a_word_keeps_its_rank_in_a_second_training(checkpoint: Path, tmp_path: Path) -> None:
    first = with_words(load(checkpoint), "zzzz")
    first.vocabulary = replace(first.vocabulary, ranks={"zzzz": 7})
    export(first, tmp_path / "first.safetensors")
    second = with_words(first, "yyyy")
    second.vocabulary = Vocabulary(second.vocabulary.words, ranks={"yyyy": 3})
    start_from(load(tmp_path / "first.safetensors"), second, "first")
    assert Captioner.from_config(second.config).vocabulary.ranks == {"zzzz": 7, "yyyy": 3}


def test_a_start_with_new_words_says_what_the_model_says() -> None:
    scenes = [picture(random_scene(np.random.default_rng(seed)), 64) for seed in range(20)]
    shipped = load("shapes")
    words = [f"{word}ish" for word in shipped.vocabulary.words]  # each like a known one
    captioner = with_words(shipped, *words)
    start_from(shipped, captioner, "shapes")
    texts = [caption.text for caption in captioner.freeze()(scenes)]
    assert texts == [caption.text for caption in shipped(scenes)]


def test_a_captioner_between_interpolates_every_parameter(checkpoint: Path) -> None:
    start = load(checkpoint)
    extended, trained = (with_words(start, "zzzz") for _ in range(2))
    start_from(start, extended, "start")
    for parameter in trained.model.parameters():
        parameter.data.add_(torch.rand_like(parameter))
    start_parameters = fitted_parameters(start, trained, "start").tensors
    interpolated = interpolate(start_parameters, trained, 0.25)
    models = extended.model, trained.model, interpolated.model
    for first, last, middle in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(middle.data, 0.25 * first.data + 0.75 * last.data)
    assert interpolated.vocabulary.words == trained.vocabulary.words


def test_with_another_tokenizer_all_words_are_new(checkpoint: Path) -> None:
    start = load(checkpoint)
    config = deepcopy(start.config) | {"vocabulary": ["圆", "a"], "tokenizer": "characters"}
    config["model"]["decoder"]["vocab_size"] = len(SPECIAL) + 2
    captioner = Captioner.from_config(config)
    start_from(start, captioner, "start")
    for rows, start_rows in word_parameters(captioner, start):
        mean = start_rows[len(SPECIAL) :].mean(dim=0)
        torch.testing.assert_close(rows, torch.stack([*start_rows[: len(SPECIAL)], mean, mean]))
    assert start_words(start, "characters", True) == ()


def test_as_many_other_words_start_from_none_of_the_words(checkpoint: Path) -> None:
    start = load(checkpoint)
    words = [f"zz{number}" for number in range(len(start.vocabulary.words))]
    captioner = Captioner.from_config(deepcopy(start.config) | {"vocabulary": words})
    start_from(start, captioner, "start")
    weight, start_weight = captioner.model.decoder.output.weight, start.model.decoder.output.weight
    mean = start_weight[len(SPECIAL) :].mean(dim=0)
    torch.testing.assert_close(weight[len(SPECIAL) :], mean.expand(len(words), -1))


def test_other_words_first_are_refused(checkpoint: Path) -> None:
    captioner = load(checkpoint)
    captioner.vocabulary = type(captioner.vocabulary)(captioner.vocabulary.words[::-1])
    with pytest.raises(InputError, match="are not the first ones of the vocabulary"):
        start_from(load(checkpoint), captioner, "start")


def test_a_training_adds_the_words_of_its_captions(
    tiny_config: Path, checkpoint: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = load(checkpoint).vocabulary.words  # all of the captions
    config = deepcopy(load(checkpoint).config) | {"vocabulary": words[::3]}
    config["model"]["decoder"]["vocab_size"] = len(SPECIAL) + len(words[::3])
    few = tmp_path / "few.safetensors"
    export(Captioner.from_config(config), few)
    new_words = [word for word in words if word not in words[::3]]
    folder = ["--trainer.default_root_dir", str(tmp_path / "run")]
    for start, expected in ((checkpoint, words), (few, (*words[::3], *new_words))):
        with plain_messages():
            cli = TrainCLI(["--config", str(tiny_config), *folder, "--model.initial", str(start)])
        assert cli.model.captioner.vocabulary.words == expected
    counts = f"{len(words[::3])} words of few.safetensors, and {len(new_words)} new"
    assert counts in capsys.readouterr().err
