import argparse
import math
from collections.abc import Iterator
from typing import Any

import pytest

from captioning.cli.options import Parser
from captioning.cli.program import _parser
from captioning.data.data_module import CaptionData
from captioning.data.readers import CaptionTable, Coco
from captioning.errors import InputError, UsageError
from captioning.models import CNNEncoder, LSTMDecoder
from captioning.numbers import BeamWidth, TopP, option, shown, unmet_requirement
from captioning.search import BeamSearch, Greedy, Sampling
from captioning.training import CrossEntropy, SelfCritical
from captioning.training.averaging import ExponentialAverage
from captioning.training.pictures import ValidationTable
from captioning.training.validation_history import ValidationPage

HOSTILE = ["nan", "inf", "-inf", "-1", "0", "1e20", str(10**20), "1e400", "9" * 5000, "", "x"]

TAKE_ZERO = {
    *("--seed", "--min-length", "--no-repeat-ngram", "--top-k", "--length-penalty", "--port"),
}

NAN, INF = math.nan, math.inf


def numeric_options() -> Iterator[tuple[str, argparse.Action]]:
    """Every option of every command that is read by a type, with the command."""
    commands: Any = next(
        action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name, parser in commands.choices.items():
        for action in parser._actions:
            if action.option_strings and action.type is not None:
                yield name, action


OPTIONS = {f"{name} {action.option_strings[0]}": action for name, action in numeric_options()}


def test_every_command_with_numbers_has_been_looked_at() -> None:
    assert len(OPTIONS) > 40
    commands = {key.split()[0] for key in OPTIONS}
    assert commands == {
        *("caption", "check", "demo", "evaluate", "ground", "judge", "score", "serve", "shapes"),
    }


@pytest.mark.parametrize("key", OPTIONS)
def test_a_hostile_number_is_refused_with_its_option_and_range_or_is_harmless(key: str) -> None:
    name = key.split()[1]
    parser = Parser()
    parser.add_argument(name, type=OPTIONS[key].type, dest="value")
    for text in HOSTILE:
        if text == "0" and name in TAKE_ZERO:
            continue
        with pytest.raises(UsageError, match=f"argument {name}: give a .*number .*") as error:
            parser.parse_args([f"{name}={text}"])
        assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda value: BeamSearch(width=value), "width"),
        (lambda value: BeamSearch(length_penalty=value), "length_penalty"),
        (lambda value: Greedy(max_length=value), "max_length"),
        (lambda value: Greedy(no_repeat_ngram=value), "no_repeat_ngram"),
        (lambda value: Sampling(captions=value), "captions"),
        (lambda value: Sampling(temperature=value), "temperature"),
        (lambda value: Sampling(top_k=value), "top_k"),
        (lambda value: Sampling(top_p=value), "top_p"),
        (lambda value: LSTMDecoder(8, value), "vocab_size"),
        (lambda value: LSTMDecoder(value, 8), "annotation_dim"),
        (lambda value: LSTMDecoder(8, 8, hidden_dim=value), "hidden_dim"),
        (lambda value: LSTMDecoder(8, 8, projection_dim=value), "projection_dim"),
        (lambda value: LSTMDecoder(8, 8, dropout=value), "dropout"),
        (lambda value: CNNEncoder("small", None, grid=value), "grid"),
        (lambda value: CNNEncoder("small", None, trainable_stages=value), "trainable_stages"),
        (lambda value: CaptionData(Coco("."), size=value), "size"),
        (lambda value: CaptionData(Coco("."), batch_size=value), "batch_size"),
        (lambda value: CaptionData(Coco("."), workers=value), "workers"),
        (lambda value: CaptionData(Coco("."), limit=value), "limit"),
        (lambda value: CaptionData(Coco("."), seed=value), "seed"),
        (lambda value: Coco(".", year=value), "year"),
        (lambda value: CaptionTable(".", val_fraction=value), "val_fraction"),
        (lambda value: CrossEntropy(label_smoothing=value), "label_smoothing"),
        (lambda value: CrossEntropy(attention_penalty=value), "attention_penalty"),
        (lambda value: SelfCritical(samples=value), "samples"),
        (lambda value: ExponentialAverage(decay=value), "decay"),
        (lambda value: ValidationTable(images=value), "images"),
        (lambda value: ValidationPage(images=value), "images"),
    ],
)
@pytest.mark.parametrize("value", [NAN, INF, -INF, -3, 1e20, 10**20, "3", [3]], ids=shown)
def test_python_is_refused_the_same_numbers(make: Any, argument: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{argument}: (give|small has)"):
        make(value)


def test_stages_beyond_those_of_the_backbone_are_refused() -> None:
    assert CNNEncoder("small", None, trainable_stages=2).first_trained == 0
    with pytest.raises(InputError, match="small has 2 stages; give a number from 0 to 2, or -1"):
        CNNEncoder("small", None, trainable_stages=3)


def test_the_edges_of_a_range_belong_to_it_unless_it_says_otherwise() -> None:
    assert [unmet_requirement(BeamWidth, value) is None for value in (0, 1, 1000, 1001)] == [
        *(False, True, True, False)
    ]
    assert [unmet_requirement(TopP, value) is None for value in (0.0, 1e-9, 1, 1.1)] == [
        *(False, True, True, False)
    ]


def test_a_truth_value_is_no_number_and_none_only_where_it_is_allowed() -> None:
    assert unmet_requirement(BeamWidth, True)
    assert unmet_requirement(BeamWidth, None)
    assert unmet_requirement(BeamWidth | None, None) is None


def test_an_option_says_what_it_wants() -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        option(BeamWidth)("1000000")
    assert str(error.value) == "give a whole number from 1 to 1000, not '1000000'"


def test_a_value_is_shown_in_one_short_line() -> None:
    assert (
        shown("a\nb" * 100) == "'a\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\n..."[:40] + "..."
    )
    assert shown(10**9999) == "a number of thousands of digits"


def test_an_error_of_an_option_ends_with_code_2() -> None:
    with pytest.raises(UsageError, match="--beam: give a whole number from 1 to 1000"):
        _parser().parse_args(["caption", "--model", "m", "--beam", "1000000"])
