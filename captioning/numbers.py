"""Ranges of numbers, shared by the command line, configurations, Python and checkpoints.

A constructor declares ranges in its signature, such as ``width: BeamWidth``. A class that inherits
from `Checked` enforces them in every call; `option` gives argparse the same range, and
`captioning.training.ranges` names the key of a configuration whose value is out of range. The
ranges are wide: they exclude values that cannot work, that fill the memory, or that never end.
"""

import argparse
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from captioning.errors import InputError

LONGEST = 40
"""The most characters of a wrong value that a message repeats."""


@dataclass(frozen=True)
class Range:
    """A finite range of numbers.

    Attributes:
        least: the lower bound.
        most: the upper bound.
        above: whether the lower bound is excluded.
        below: whether the upper bound is excluded.
    """

    least: int | float
    most: int | float
    above: bool = False
    below: bool = False

    def __contains__(self, number: Any) -> bool:
        """Whether a number is in the range; NaN never is."""
        is_inside = self.least <= number <= self.most
        is_edge = (self.above and number == self.least) or (self.below and number == self.most)
        return bool(is_inside and not is_edge)

    def __repr__(self) -> str:  # as the help of `captioning train` shows it
        if self.above or self.below:
            least = f"above {self.least}" if self.above else f"of at least {self.least}"
            return f"{least} and {'below' if self.below else 'at most'} {self.most}"
        return f"from {self.least} to {self.most}"


Seed = Annotated[int, Range(0, 2**32 - 1)]

BeamWidth = Annotated[int, Range(1, 1000)]
CaptionsPerImage = Annotated[int, Range(1, 1000)]
Samples = Annotated[int, Range(1, 100_000)]
ComparedSamples = Annotated[int, Range(2, 10_000)]
MaxLength = Annotated[int, Range(1, 1000)]
MinLength = Annotated[int, Range(0, 1000)]
NgramLength = Annotated[int, Range(0, 1000)]
LengthPenalty = Annotated[float, Range(0, 10)]
Temperature = Annotated[float, Range(0.001, 1000)]
TopK = Annotated[int, Range(0, 1_000_000)]
TopP = Annotated[float, Range(0, 1, above=True)]
RunnersUp = Annotated[int, Range(0, 1000)]

Width = Annotated[int, Range(1, 16_384)]
AnnotationWidth = Annotated[int, Range(1, 65_536)]
VocabularySize = Annotated[int, Range(4, 1_000_000)]
Heads = Annotated[int, Range(1, 256)]
Layers = Annotated[int, Range(1, 100)]
OptionalLayers = Annotated[int, Range(0, 100)]
Grid = Annotated[int, Range(1, 64)]
TrainableStages = Annotated[int, Range(-1, 100)]
ImageSize = Annotated[int, Range(8, 4096)]

Share = Annotated[float, Range(0, 1)]
ShareBelowOne = Annotated[float, Range(0, 1, below=True)]
LearningRate = Annotated[float, Range(0, 100, above=True)]
WeightDecay = Annotated[float, Range(0, 100)]
Importance = Annotated[float, Range(0, 1000)]

BatchSize = Annotated[int, Range(1, 65_536)]
Workers = Annotated[int, Range(0, 64)]
ProcessCount = Annotated[int, Range(1, 64)]
MachineCount = Annotated[int, Range(1, 4096)]
Count = Annotated[int, Range(0, 1_000_000_000)]
PositiveCount = Annotated[int, Range(1, 1_000_000_000)]
TokensPerCaption = Annotated[int, Range(1, 10_000)]
TableImages = Annotated[int, Range(0, 1000)]

ShardSize = Annotated[int, Range(1, 1_000_000)]
Scenes = Annotated[int, Range(1, 1_000_000)]
ScenePixels = Annotated[int, Range(32, 4096)]

Year = Annotated[int, Range(1, 9999)]

Port = Annotated[int, Range(0, 2**16 - 1)]
Megabytes = Annotated[int, Range(1, 1000)]
Megapixels = Annotated[int, Range(1, 178)]
Seconds = Annotated[int, Range(1, 86_400)]
Requests = Annotated[int, Range(1, 10_000)]
Connections = Annotated[int, Range(1, 65_536)]


class Checked:
    """A class whose constructor takes only values of the types and ranges in its signature."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments before the constructor runs.

        Raises:
            InputError: an argument is of another type or out of its range.
        """
        given = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs).arguments
        check(cls.__name__, cls.__init__, given)
        return super().__new__(cls)


def check(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Compare the arguments of a call with the signature of a function.

    Args:
        name: the function's name in messages.
        function: the function, with annotated parameters.
        given: arguments by the names of the parameters.

    Raises:
        InputError: an argument is of another type or out of its range.
    """
    for parameter, hint in hints(function).items():
        if parameter in given and (wanted := unmet_requirement(hint, given[parameter])):
            raise InputError(f"{name}: {parameter}: give {wanted}, not {shown(given[parameter])}")


@cache
def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's parameters, ranges included."""
    try:
        found = get_type_hints(function, include_extras=True)
    except NameError:  # annotations that only a type checker can resolve
        return {}
    parameters = inspect.signature(function).parameters.values()
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: found[p.name] for p in parameters if p.name in found and p.kind not in many}


def unmet_requirement(hint: Any, value: Any) -> str | None:
    """A description of the expected value; none if `value` fits or `hint` is not checked.

    Args:
        hint: an annotation.
        value: of any type.
    """
    bounds = None
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        bounds = next((extra for extra in extras if isinstance(extra, Range)), None)
    if get_origin(hint) in (Union, types.UnionType):
        wanted = [unmet_requirement(part, value) for part in get_args(hint)]
        return None if None in wanted else " or ".join(filter(None, wanted))
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        return None if value in allowed else " or ".join(map(repr, allowed))
    if get_origin(hint) is type:
        [parent] = get_args(hint)
        is_one = isinstance(value, type) and issubclass(value, parent)
        return None if is_one else f"a class that inherits from {parent.__name__}"
    if not isinstance(hint, type) or hint not in _PLAIN:
        return None
    kind, text = _PLAIN[hint]
    is_kind = isinstance(value, kind) and (hint is bool or not isinstance(value, bool))
    if is_kind and (bounds is None or value in bounds):
        return None
    return text if bounds is None else f"{text} {bounds}"


_PLAIN: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "true or false"),
    str: (str, "a text"),
    type(None): (type(None), "none"),
}
"""The types that are checked, with their names in messages."""


def shown(value: object) -> str:
    """A value as messages show it: short, in one line."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of thousands of digits"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def option(hint: Any) -> Callable[[str], Any]:
    """An argparse type that parses and checks a number.

    Args:
        hint: a number's type and range, such as `BeamWidth`.
    """
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
