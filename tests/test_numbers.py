import argparse
from importlib import import_module
from typing import Any

import pytest

from captioning.cli.program import COMMANDS, LIGHTNING, parser_for
from captioning.errors import UsageError
from captioning.numbers import BeamWidth, ShareBelowOne, TopP, option, unmet_requirement

TAKE_ZERO = {
    *("--seed", "--min-length", "--no-repeat-ngram", "--top-k", "--length-penalty", "--port"),
    *("--min-confidence", "--val-share"),
}


def numeric_options() -> dict[str, Any]:
    """The type of every option of every command that is read by one."""
    found = {}
    for name in COMMANDS.keys() - set(LIGHTNING):
        parser = argparse.ArgumentParser()
        import_module(f"captioning.cli.{name}").add_options(parser)
        for action in parser._actions:
            if action.option_strings and action.type is not None:
                found[f"{name} {action.option_strings[0]}"] = action.type
    return found


def test_every_numeric_option_refuses_hostile_numbers() -> None:
    options = numeric_options()
    assert len(options) > 40
    for key, read in options.items():
        hostile = ["nan", "inf", "-inf", "-1", "0", "1e20", str(10**20), "9" * 5000, "", "x"]
        if key.split()[1] in TAKE_ZERO:
            hostile.remove("0")
        for text in hostile:
            with pytest.raises(argparse.ArgumentTypeError, match=r"give a .*number .*") as error:
                read(text)
            assert len(str(error.value)) < 200


def test_the_edges_of_a_range_belong_to_it_unless_it_excludes_them() -> None:
    assert [unmet_requirement(BeamWidth, value) is None for value in (0, 1, 1000, 1001)] == [
        *(False, True, True, False)
    ]
    assert [unmet_requirement(TopP, value) is None for value in (0.0, 1e-9, 1, 1.1)] == [
        *(False, True, True, False)
    ]


def test_a_range_in_words() -> None:
    assert unmet_requirement(BeamWidth | None, 0) == "a whole number from 1 to 1000 or none"
    assert unmet_requirement(TopP, 0.0) == "a number above 0 and at most 1"
    assert unmet_requirement(ShareBelowOne, 1) == "a number from 0 to below 1"


def test_a_truth_value_is_no_number_and_none_only_where_it_is_allowed() -> None:
    assert unmet_requirement(BeamWidth, True)
    assert unmet_requirement(BeamWidth, None)
    assert unmet_requirement(BeamWidth | None, None) is None


def test_an_option_says_what_it_wants() -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        option(BeamWidth)("1000000")
    assert str(error.value) == "give a whole number from 1 to 1000, not '1000000'"


def test_an_error_of_an_option_ends_with_code_2() -> None:
    with pytest.raises(UsageError, match="--beam: give a whole number from 1 to 1000"):
        parser_for("caption").parse_args(["caption", "--model", "m", "--beam", "1000000"])
