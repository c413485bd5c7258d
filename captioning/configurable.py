"""Parts of a model that are stored in checkpoints as plain values and built again from them."""

import inspect
from abc import ABC
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from captioning.errors import InputError, shown

_KINDS: dict[str, type["Configurable"]] = {}
"""All configurable classes by module and name."""

LIMITS = {
    "layers": range(1, 101),
    "region_layers": range(101),
    "heads": range(1, 257),
    "region_heads": range(1, 257),
    "grid": range(1, 65),
    "grid_columns": range(1, 65),
    "size": range(8, 1025),
    "width": range(1, 4097),
    "groups": range(1, 1001),
    "captions": range(1, 1001),
    "max_length": range(1, 1001),
    "min_length": range(1001),
}
"""What `build` accepts of arguments that take time or memory, whatever tensors a file holds."""

Part = TypeVar("Part")


class UnknownClassError(InputError):
    """A config names an unknown class."""


class Configurable(ABC):
    """A part of a model that stores the arguments of its constructor.

    Its `config` is a dict of plain values that `torch.load(weights_only=True)` accepts; `build`
    makes the same part from it. The config has the class's full name, with its module.

    Attributes:
        config: the class and the arguments.
        removed: arguments that earlier versions had, each with the value that changes nothing.
    """

    config: dict[str, Any]
    removed: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _KINDS[full_name(cls)] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> "Configurable":
        """Store the arguments."""
        part = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(part, *args, **kwargs)
        bound.apply_defaults()
        given = dict(list(bound.arguments.items())[1:])
        for parameter in bound.signature.parameters.values():  # *args have no names
            if parameter.kind is parameter.VAR_POSITIONAL:
                del given[parameter.name]
            elif parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name)
        plain = {name: _plain(value) for name, value in given.items()}
        part.config = {"class": full_name(cls), **plain}
        return part


def full_name(kind: type) -> str:
    """The name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def bare_name(full: str) -> str:
    """The name of a class without its module."""
    return full.rpartition(".")[2]


def build(config: Any, expected_class: type[Part], **overrides: Any) -> Part:
    """The part that `config` describes, with some arguments replaced by `overrides`.

    The config may come from a stranger. Only a subclass of `Configurable` and of `expected_class`
    is built, after the names, the plain types and the limits of its arguments have been checked.

    Raises:
        InputError: the class is unknown or another one, or an argument is unknown, has
            another type, or is beyond its limits.
    """
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InputError(f"{shown(config)} does not describe a {expected_class.__name__}")
    given = config | overrides
    kind = given.pop("class", None)
    return _checked(kind, expected_class, given)()


def _checked(name: Any, expected_class: type[Part], given: dict[str, Any]) -> partial[Part]:
    """The class of this name with its arguments, ready to be called."""
    kind = _kind(name)
    if not issubclass(kind, expected_class):
        raise InputError(f"{kind.__name__} is not a subclass of {expected_class.__name__}")
    given = {
        argument: value
        for argument, value in given.items()
        if argument not in kind.removed or value != kind.removed[argument]
    }
    try:
        inspect.signature(kind.__init__).bind_partial(None, **given)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {error}") from None
    try:
        hints = get_type_hints(kind.__init__)
    except NameError:  # annotations that only a type checker can resolve
        hints = {}
    for argument, value in given.items():
        hint, limits = hints.get(argument, Any), LIMITS.get(argument)
        if not _fits(value, hint) or (limits and value is not None and value not in limits):
            raise InputError(f"{kind.__name__}: {argument} cannot be {shown(value)}")
        given[argument] = _class_of(value, hint)
    return cast("partial[Part]", partial(kind, **given))


def _class_of(value: Any, hint: Any) -> Any:
    """The class, or partial of a class, that an argument stands for; other values as they are."""
    if not isinstance(value, dict) or "class_name" not in value:
        return value
    *_, made = get_args(hint) if get_origin(hint) in (type, Callable) else (object,)
    given = value.copy()
    part = _checked(given.pop("class_name"), made, given)
    return part if part.keywords else part.func


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; true for hints of any other kind."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, hint) if hint in (str, bool, type(None)) else True


def _kind(name: Any) -> type["Configurable"]:
    """The class with this full name; one of this package may have moved to another module."""
    if isinstance(name, str) and name in _KINDS:
        return _KINDS[name]
    ours = f"{__package__}."
    if isinstance(name, str) and name.startswith(ours):
        moved = [kind for full, kind in _KINDS.items() if full.startswith(ours)]
        moved = [kind for kind in moved if kind.__name__ == bare_name(name)]
        if len(moved) == 1:
            return moved[0]
        raise UnknownClassError(f"this version of captioning has no class {shown(name)}")
    raise UnknownClassError(
        f"needs code that is not part of captioning, {shown(name)}; import it only if you trust "
        "its author"
    )


def _plain(value: Any) -> Any:
    """An argument as a plain value; a class or a partial of one becomes its name and arguments."""
    if isinstance(value, partial):  # jsonargparse's has the class among its arguments
        kind = next(part for part in (value.func, *value.args) if isinstance(part, type))
        return {"class_name": full_name(kind), **value.keywords}
    return {"class_name": full_name(value)} if isinstance(value, type) else value
