import copy
import io
import pickle

import pytest
import torch

from captioning import search
from captioning.configurable import Configurable, build
from captioning.errors import InputError
from captioning.models import Attention, DotProductAttention, LSTMDecoder
from captioning.search import Greedy


def test_a_config_holds_what_was_given_and_the_defaults() -> None:
    assert Greedy(7, no_repeat_ngram=3).config == {
        "class": "captioning.search.independent.Greedy",
        "max_length": 7,
        "min_length": 1,
        "no_repeat_ngram": 3,
    }


def test_a_part_is_built_again_from_its_config() -> None:
    again = build(Greedy(max_length=7, no_repeat_ngram=3).config)
    assert isinstance(again, Greedy)
    assert (again.max_length, again.no_repeat_ngram) == (7, 3)


def test_an_argument_that_is_a_class_is_built_again() -> None:
    decoder = LSTMDecoder(3, 8, 4, 4, 4, attention=DotProductAttention)
    assert isinstance(build(decoder.config).attention, DotProductAttention)


def test_a_config_survives_a_checkpoint_of_plain_values() -> None:
    config = LSTMDecoder(3, 8, 4, 4, 4, attention=DotProductAttention).config
    file = io.BytesIO()
    torch.save(config, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == config


def test_overrides_replace_arguments_and_leave_the_config_alone() -> None:
    config = Greedy(max_length=7).config
    assert build(config, max_length=9).max_length == 9
    assert config["max_length"] == 7


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))]
)
def test_copies_keep_the_config(copied: object) -> None:
    assert callable(copied)
    assert copied(Greedy(max_length=7)).config["max_length"] == 7


def test_a_class_without_arguments_can_be_built() -> None:
    class Plain(Configurable):
        """Has no __init__ of its own."""

    assert isinstance(build(Plain().config), Plain)


def test_a_class_made_by_a_user_can_be_built() -> None:
    class Shouted(Configurable):
        def __init__(self, loudness: int) -> None:
            self.loudness = loudness

    assert build(Shouted(11).config).loudness == 11


def test_a_class_that_moved_to_another_module_of_the_package_is_found() -> None:
    config = Greedy(max_length=7).config | {"class": "captioning.search.choices.Greedy"}
    assert type(build(config)) is Greedy


def test_two_classes_of_one_name_are_distinguished_by_their_modules() -> None:
    class Greedy(Configurable):
        """Another one, of this module."""

    theirs, ours = build(Greedy().config), build(search.Greedy().config)
    assert type(theirs) is Greedy
    assert type(ours) is search.Greedy


def test_a_class_whose_module_is_not_imported_names_the_option_that_imports_it() -> None:
    with pytest.raises(InputError, match=r"'my\.parts\.Quiet'.*give --import my\.parts"):
        build({"class": "my.parts.Quiet"})


@pytest.mark.parametrize("name", ["Whispered", "OrderedDict", "system"])
def test_nothing_but_known_parts_can_be_built(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}.*import the module that defines it"):
        build({"class": name})


def test_a_misspelt_argument_names_itself() -> None:
    with pytest.raises(TypeError, match="max_lenght"):
        Greedy(max_lenght=7)  # type: ignore[call-arg]


def test_a_class_that_lacks_a_method_is_refused_by_name() -> None:
    class Unfinished(Attention):
        pass

    with pytest.raises(InputError, match="Unfinished: lacks "):
        Unfinished()
