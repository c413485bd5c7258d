"""Ranges of numbers, shared by the command line, configurations, Python and checkpoints.

A constructor declares ranges in its signature, such as ``width: BeamWidth``. `Checked` enforces
them in Python, `option` in argparse; jsonargparse, which reads configurations, understands them by
itself. They are wide: they exclude values that cannot work, fill the memory or never end.
"""

import argparse
import inspect
import types
from abc import ABC
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval

from captioning.errors import InputError, shown

Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]

BeamWidth = Annotated[int, Interval(ge=1, le=1000)]
CaptionsPerImage = Annotated[int, Interval(ge=1, le=1000)]
Samples = Annotated[int, Interval(ge=1, le=100_000)]
ComparedSamples = Annotated[int, Interval(ge=2, le=10_000)]
MaxLength = Annotated[int, Interval(ge=1, le=1000)]
MinLength = Annotated[int, Interval(ge=0, le=1000)]
NgramLength = Annotated[int, Interval(ge=0, le=1000)]
Diversity = Annotated[float, Interval(ge=0, le=1000)]
LengthPenalty = Annotated[float, Interval(ge=0, le=10)]
Temperature = Annotated[float, Interval(ge=0.001, le=1000)]
TopK = Annotated[int, Interval(ge=0, le=1_000_000)]
TopP = Annotated[float, Interval(gt=0, le=1)]

Width = Annotated[int, Interval(ge=1, le=16_384)]
AnnotationWidth = Annotated[int, Interval(ge=1, le=65_536)]
VocabularySize = Annotated[int, Interval(ge=4, le=1_000_000)]
Heads = Annotated[int, Interval(ge=1, le=256)]
Layers = Annotated[int, Interval(ge=1, le=100)]
OptionalLayers = Annotated[int, Interval(ge=0, le=100)]
Grid = Annotated[int, Interval(ge=1, le=64)]
TrainableStages = Annotated[int, Interval(ge=-1, le=100)]
ImageSize = Annotated[int, Interval(ge=8, le=1024)]

Share = Annotated[float, Interval(ge=0, le=1)]
ShareBelowOne = Annotated[float, Interval(ge=0, lt=1)]
LearningRate = Annotated[float, Interval(gt=0, le=100)]
WeightDecay = Annotated[float, Interval(ge=0, le=100)]
Importance = Annotated[float, Interval(ge=0, le=1000)]

BatchSize = Annotated[int, Interval(ge=1, le=65_536)]
Workers = Annotated[int, Interval(ge=0, le=64)]
ProcessCount = Annotated[int, Interval(ge=1, le=64)]
MachineCount = Annotated[int, Interval(ge=1, le=4096)]
Count = Annotated[int, Interval(ge=0, le=1_000_000_000)]
PositiveCount = Annotated[int, Interval(ge=1, le=1_000_000_000)]
TokensPerCaption = Annotated[int, Interval(ge=1, le=10_000)]
TableImages = Annotated[int, Interval(ge=0, le=1000)]

ShardSize = Annotated[int, Interval(ge=1, le=1_000_000)]
Scenes = Annotated[int, Interval(ge=1, le=1_000_000)]
ScenePixels = Annotated[int, Interval(ge=32, le=4096)]

Year = Annotated[int, Interval(ge=1, le=9999)]

Port = Annotated[int, Interval(ge=0, le=2**16 - 1)]
Megabytes = Annotated[int, Interval(ge=1, le=1000)]
Megapixels = Annotated[int, Interval(ge=1, le=178)]
Seconds = Annotated[int, Interval(ge=1, le=86_400)]
Requests = Annotated[int, Interval(ge=1, le=10_000)]


class Checked(ABC):  # noqa: B024 (subclasses have the abstract methods)
    """A class whose constructor checks its arguments against the types and ranges it declares."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments before the constructor runs.

        Raises:
            InputError: an argument has another type or is out of range, or the class lacks a
                method.
        """
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise InputError(f"{cls.__name__}: lacks {missing}; give a class that defines it")
        given = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs).arguments
        check(cls.__name__, cls.__init__, given)
        return super().__new__(cls)


def check(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise InputError if an argument does not fit the function's annotations.

    Args:
        name: the function's name in messages.
        function: the function, with annotated parameters.
        given: arguments by parameter name.
    """
    for parameter, hint in _hints(function).items():
        if parameter in given and (wanted := unmet_requirement(hint, given[parameter])):
            raise InputError(f"{name}: {parameter}: give {wanted}, not {shown(given[parameter])}")


def unmet_requirement(hint: Any, value: Any) -> str | None:
    """What `hint` asks for in words, unless `value` fits or the annotation is not a plain one."""
    wanted = in_words(hint)
    if wanted is not None:
        from pydantic import ValidationError  # only here: help must not wait for it

        try:
            _validator(hint).validate_python(value)
        except ValidationError:
            return wanted
    return None


def in_words(hint: Any) -> str | None:
    """A plain annotation in words, such as ``a whole number from 1 to 1000``; None for others."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated and isinstance(bounds := parts[1], Interval):
        number, most = in_words(parts[0]), bounds.le
        if bounds.gt is not None:
            return f"{number} above {bounds.gt} and at most {most}"
        return f"{number} from {bounds.ge} to {f'below {bounds.lt}' if most is None else most}"
    if origin in (Union, types.UnionType):
        words = [in_words(part) for part in parts]
        return None if None in words else " or ".join(filter(None, words))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is type:
        return f"a class that inherits from {parts[0].__name__}"
    return None


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    type(None): "none",
}


@cache
def _validator(hint: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's named parameters, ranges included."""
    try:
        found = get_type_hints(function, include_extras=True)
    except NameError:  # annotations that only a type checker can resolve
        return {}
    parameters = inspect.signature(function).parameters.values()
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: found[p.name] for p in parameters if p.name in found and p.kind not in many}


def option(hint: Any) -> Callable[[str], Any]:
    """An argparse type that parses a number and checks its range, such as `BeamWidth`."""
    number = get_args(hint)[0]

    def read(text: str) -> Any:
        try:
            value = number(text)
        except ValueError:
            value = None
        if wanted := unmet_requirement(hint, value):
            raise argparse.ArgumentTypeError(f"give {wanted}, not {shown(text)}")
        return value

    return read
