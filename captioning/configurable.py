"""Stores parts of a model in checkpoints as plain values, and builds them again from these."""

import inspect
import sys
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
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

from captioning.errors import InputError, format_value

IMPORT = "--import"
"""Option for a user's module; it may be repeated."""

USER_MODULES: list[str] = []
"""The modules that ``--import`` has named in this process."""

Part = TypeVar("Part")


class UnknownClassError(InputError):
    """A config names an unknown class."""


class Configurable(ABC):
    """A part of a model that stores the arguments of its constructor.

    Its `config` is a dict of plain values that `torch.load(weights_only=True)` accepts; `build`
    makes the same part from it. The config has the class's full name, with its module.

    Attributes:
        config: the class and the arguments.
        limits: allowed values of numeric arguments that take time or memory. They hold for
            subclasses too, whose `limits` add to them.
        removed: arguments of earlier versions, each with the value that has no effect.
        fixed: values that `build` passes in place of those in a config.
    """

    config: dict[str, Any]
    limits: ClassVar[Mapping[str, range]] = {}
    removed: ClassVar[Mapping[str, Any]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> "Configurable":
        """Store the arguments."""
        part = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(part, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])  # without self
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:  # *args have no names
                del arguments[parameter.name]
            elif parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name)
        for name, value in arguments.items():
            if isinstance(value, type):
                arguments[name] = {"class_name": full_name(value)}
            elif isinstance(value, partial):
                arguments[name] = {
                    "class_name": full_name(_partial_class(value)),
                    **value.keywords,
                }
        part.config = {"class": full_name(cls), **arguments}
        return part


def _partial_class(factory: partial[Any]) -> type:
    """The class that a partial constructs."""
    # A partial of jsonargparse has the class among its arguments.
    return next(value for value in (factory.func, *factory.args) if isinstance(value, type))


def full_name(part_class: type) -> str:
    """The name of a class with its module."""
    return f"{part_class.__module__}.{part_class.__qualname__}"


def bare_name(class_name: str) -> str:
    """The name of a class without its module."""
    return class_name.rpartition(".")[2]


def build(config: Any, expected_class: type[Part]) -> Part:
    """Build the part that `config` describes.

    The config may be untrusted. Only a subclass of `Configurable` and of `expected_class` is built,
    after the names, the plain types and the limits of its arguments have been checked.

    Raises:
        InputError: the class is unknown or another one, or an argument is unknown, has
            another type, or is beyond its limits.
    """
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InputError(f"{format_value(config)} does not describe a {expected_class.__name__}")
    arguments = config.copy()
    class_name = arguments.pop("class", None)
    return _checked_partial(class_name, expected_class, arguments)()


def _checked_partial(
    class_name: Any, expected_class: type[Part], arguments: dict[str, Any]
) -> partial[Part]:
    """The class of this name with its checked arguments, ready to be called."""
    part_class = _class_by_name(class_name)
    if not issubclass(part_class, expected_class):
        raise InputError(f"{part_class.__name__} is not a subclass of {expected_class.__name__}")
    for name, unused_value in part_class.removed.items():
        if name in arguments and arguments[name] == unused_value:
            del arguments[name]
    signature = inspect.signature(part_class.__init__)
    for name, value in part_class.fixed.items():
        if name in arguments or name in signature.parameters:
            arguments[name] = value
    try:
        signature.bind_partial(None, **arguments)
    except TypeError as error:
        raise InputError(f"{part_class.__name__}: {error}") from None
    try:
        hints = get_type_hints(part_class.__init__)
    except NameError:  # annotations that only a type checker can resolve
        hints = {}
    limits = limits_of(part_class)
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        is_within_limits = name not in limits or value is None or value in limits[name]
        if not _fits(value, hint) or not is_within_limits:
            raise InputError(f"{part_class.__name__}: {name} cannot be {format_value(value)}")
        if isinstance(value, dict) and "class_name" in value:  # a class, or a partial of one
            *_, result_class = get_args(hint) if get_origin(hint) in (type, Callable) else (object,)
            part_arguments = value.copy()
            part = _checked_partial(part_arguments.pop("class_name"), result_class, part_arguments)
            arguments[name] = part if part.keywords else part.func
    return cast("partial[Part]", partial(part_class, **arguments))


def _class_by_name(class_name: Any) -> type[Configurable]:
    """The subclass of `Configurable` with this full name.

    A class of this package may have moved to another module.
    """
    classes: list[Any] = [Configurable]
    for part_class in classes:  # which grows, until all subclasses are in it
        classes += part_class.__subclasses__()
    matches = [part_class for part_class in classes if full_name(part_class) == class_name]
    if matches:
        return cast("type[Configurable]", matches[-1])
    package = f"{__package__}."
    if not (isinstance(class_name, str) and class_name.startswith(package)):
        raise UnknownClassError(
            f"needs code that is not part of captioning, {format_value(class_name)}; import it "
            "only if you trust its author"
        )
    moved_classes = set()
    for part_class in classes:
        name = full_name(part_class)
        if name.startswith(package) and bare_name(name) == bare_name(class_name):
            moved_classes.add(part_class)
    if len(moved_classes) != 1:
        raise UnknownClassError(
            f"this version of captioning has no class {format_value(class_name)}"
        )
    return cast("type[Configurable]", moved_classes.pop())


def limits_of(part_class: type[Configurable]) -> dict[str, range]:
    """The limits of a class's arguments, those of its base classes included."""
    limits: dict[str, range] = {}
    for base in reversed(part_class.__mro__):
        limits |= vars(base).get("limits", {})
    return limits


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of a hint; true for types that are not plain."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint in (int, float):
        is_number = isinstance(value, int | hint) and not isinstance(value, bool)
        return is_number and abs(value) < 1e300  # finite
    return isinstance(value, hint) if hint in (str, bool, type(None)) else True


def import_modules(arguments: Sequence[str]) -> list[str]:
    """Import the user's modules that ``--import`` names, from the working folder or installed.

    Returns:
        The other arguments.

    Raises:
        InputError: a module does not exist or fails, or ``--import`` is the last argument.
    """
    other_arguments = []
    remaining = iter(arguments)
    for argument in remaining:
        option, equals_sign, module = argument.partition("=")
        if option != IMPORT:
            other_arguments.append(argument)
            continue
        module = module if equals_sign else next(remaining, "")
        if not module:
            raise InputError(f"{IMPORT}: expected the name of a module, such as my_decoder")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # last, so that no file there shadows an installed one
        try:
            import_module(module.removesuffix(".py"))
        except Exception as error:  # the user's module may raise anything
            raise InputError(f"{IMPORT} {module}: {type(error).__name__}: {error}") from error
        USER_MODULES.append(module)
    return other_arguments
