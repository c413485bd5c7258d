import copy
import io
import math
import pickle
from functools import partial
from typing import ClassVar

import pytest
import torch

from captioning.configurable import Configurable, UnknownClassError, build, full_name
from captioning.data.preprocessing import MirroredPreprocessing, Preprocessing
from captioning.errors import InputError
from captioning.models import (
    Adapter,
    CNNEncoder,
    Decoder,
    DotProductAttention,
    Encoder,
    LSTMDecoder,
    MultiHeadAttention,
    TransformerDecoder,
)
from captioning.search import BeamSearch, DiverseBeamSearch, Greedy, Sampling, Search


def test_a_part_is_built_again_from_its_config() -> None:
    config = Greedy(max_length=7, no_repeat_ngram=3).config
    assert config == {
        "class": "captioning.search.independent.Greedy",
        "max_length": 7,
        "min_length": 1,
        "no_repeat_ngram": 3,
        "repeats": True,
    }
    again = build(config, Search)
    assert isinstance(again, Greedy)
    assert (again.max_length, again.no_repeat_ngram) == (7, 3)


def test_an_argument_that_is_a_class_is_built_again() -> None:
    config = LSTMDecoder(3, 8, 4, 4, 4, attention=DotProductAttention).config
    assert isinstance(build(config, LSTMDecoder).attention, DotProductAttention)
    file = io.BytesIO()
    torch.save(config, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == config


def test_copies_keep_the_config() -> None:
    part = Greedy(max_length=7)
    for copied in (copy.copy(part), copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        assert copied.config == part.config


def test_a_class_of_a_user_can_be_built() -> None:
    class Shouted(Configurable):
        removed: ClassVar = {"echo": False}

        def __init__(self, loudness: int) -> None:
            self.loudness = loudness

    config = Shouted(11).config
    assert build(config, Shouted).loudness == 11
    assert build(config | {"echo": False}, Shouted).loudness == 11
    with pytest.raises(InputError, match="echo"):
        build(config | {"echo": True}, Shouted)


def test_limits_hold_for_the_arguments_of_an_argument() -> None:
    config = LSTMDecoder(3, 8, 4, 4, 4, attention=partial(MultiHeadAttention, heads=2)).config
    assert isinstance(build(config, Decoder), LSTMDecoder)
    many = {"class_name": full_name(MultiHeadAttention), "heads": 10**9}
    with pytest.raises(InputError, match="MultiHeadAttention: heads cannot be 1000000000"):
        build(config | {"attention": many}, Decoder)


def test_limits_of_a_users_class_add_to_those_of_its_base() -> None:
    class Wide(Greedy):
        limits: ClassVar = {"depth": range(3)}

        def __init__(self, depth: int = 1, max_length: int = 20) -> None:
            super().__init__(max_length=max_length)

    for argument, value in (("depth", 3), ("max_length", 1001)):
        with pytest.raises(InputError, match=f"Wide: {argument} cannot be {value}"):
            build({"class": full_name(Wide), argument: value}, Search)


def test_a_class_that_moved_within_the_package_is_found() -> None:
    config = Greedy(max_length=7).config | {"class": "captioning.search.choices.Greedy"}
    assert type(build(config, Search)) is Greedy


@pytest.mark.parametrize("name", ["my.parts.Quiet", "collections.OrderedDict", "os.system", 3])
def test_nothing_but_imported_parts_can_be_built(name: object) -> None:
    with pytest.raises(UnknownClassError, match="import it only if you trust its author"):
        build({"class": name}, Search)


def test_the_class_is_checked_before_it_is_constructed() -> None:
    class Costly(Encoder):
        def __init__(self) -> None:
            raise AssertionError("constructed")

    with pytest.raises(InputError, match="Costly is not a subclass of Search"):
        build({"class": full_name(Costly)}, Search)
    attention = {"class_name": full_name(Costly)}
    with pytest.raises(InputError, match="Costly is not a subclass of Attention"):
        build(LSTMDecoder(3, 8).config | {"attention": attention}, Decoder)


@pytest.mark.parametrize(
    ("part", "kind", "argument", "value"),
    [
        *((BeamSearch(), Search, "width", value) for value in (0, -3, 10**9, "3", [3], True, 1.5)),
        (BeamSearch(), Search, "length_penalty", "1"),
        (Greedy(), Search, "max_length", 10**6),
        (Preprocessing(), Preprocessing, "size", 10**5),
        (Preprocessing(), Preprocessing, "fit", "stretch"),
        (CNNEncoder("small", None), Encoder, "grid", math.inf),
        (TransformerDecoder(4, 8, 8, 1, 2), Decoder, "layers", 10**9),
        (Adapter(4), Adapter, "region_layers", 10**9),
        (LSTMDecoder(3, 8), Decoder, "attention_dim", None),
        *((DiverseBeamSearch(), Search, name, 10**9) for name in ("groups", "width", "min_length")),
        (Sampling(), Search, "captions", 10**9),
        (MirroredPreprocessing(), Preprocessing, "size", 10**5),
    ],
)
def test_arguments_of_wrong_types_or_sizes_are_refused(
    part: Configurable, kind: type, argument: str, value: object
) -> None:
    with pytest.raises(InputError, match=argument):
        build(part.config | {argument: value}, kind)
