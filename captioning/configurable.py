"""Parts of a model that are stored in checkpoints as plain values and built again from them."""

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

from captioning.errors import InputError, shown

IMPORT = "--import"
"""The option with the name of a user's module; it may be repeated."""

USER_MODULES: list[str] = []
"""The modules that ``--import`` has named in this process."""

LIMITS = {
    "layers": range(1, 101),
    "region_layers": range(101),
    "heads": range(1, 257),
    "region_heads": range(1, 257),
    "grid": range(1, 65),
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
        fixed: what `build` passes for an argument, whatever a config says.
    """

    config: dict[str, Any]
    removed: ClassVar[Mapping[str, Any]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}

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
        for name, value in given.items():
            if isinstance(value, type):
                given[name] = {"class_name": full_name(value)}
            elif isinstance(value, partial):  # jsonargparse's has the class among its arguments
                kind = next(each for each in (value.func, *value.args) if isinstance(each, type))
                given[name] = {"class_name": full_name(kind), **value.keywords}
        part.config = {"class": full_name(cls), **given}
        return part


def full_name(kind: type) -> str:
    """The name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def bare_name(full: str) -> str:
    """The name of a class without its module."""
    return full.rpartition(".")[2]


def build(config: Any, expected_class: type[Part]) -> Part:
    """The part that `config` describes.

    The config may come from a stranger. Only a subclass of `Configurable` and of `expected_class`
    is built, after the names, the plain types and the limits of its arguments have been checked.

    Raises:
        InputError: the class is unknown or another one, or an argument is unknown, has
            another type, or is beyond its limits.
    """
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InputError(f"{shown(config)} does not describe a {expected_class.__name__}")
    given = config.copy()
    return _checked(given.pop("class", None), expected_class, given)()


def _checked(name: Any, expected_class: type[Part], given: dict[str, Any]) -> partial[Part]:
    """The class of this name with its arguments, ready to be called.

    A class of this package may have moved to another module.
    """
    kinds: list[Any] = [Configurable]
    for kind in kinds:  # which grows, until all subclasses are in it
        kinds += kind.__subclasses__()
    known = [kind for kind in kinds if full_name(kind) == name][-1:]
    ours = f"{__package__}."
    if not known and isinstance(name, str) and name.startswith(ours):
        known = [kind for kind in kinds if full_name(kind).startswith(ours)]
        known = [kind for kind in known if bare_name(full_name(kind)) == bare_name(name)]
        if len(set(known)) != 1:
            raise UnknownClassError(f"this version of captioning has no class {shown(name)}")
    if not known:
        raise UnknownClassError(
            f"needs code that is not part of captioning, {shown(name)}; import it only if you "
            "trust its author"
        )
    kind = known[0]
    if not issubclass(kind, expected_class):
        raise InputError(f"{kind.__name__} is not a subclass of {expected_class.__name__}")
    given = {
        argument: value
        for argument, value in given.items()
        if argument not in kind.removed or value != kind.removed[argument]
    }
    signature = inspect.signature(kind.__init__)
    for argument, value in kind.fixed.items():
        if argument in given or argument in signature.parameters:
            given[argument] = value
    try:
        signature.bind_partial(None, **given)
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
        if isinstance(value, dict) and "class_name" in value:  # a class, or a partial of one
            *_, made = get_args(hint) if get_origin(hint) in (type, Callable) else (object,)
            inner = value.copy()
            part = _checked(inner.pop("class_name"), made, inner)
            given[argument] = part if part.keywords else part.func
    return cast("partial[Part]", partial(kind, **given))


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; true for hints of any other kind."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
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
    others = []
    waiting = iter(arguments)
    for argument in waiting:
        option, is_one, module = argument.partition("=")
        if option != IMPORT:
            others.append(argument)
            continue
        module = module if is_one else next(waiting, "")
        if not module:
            raise InputError(f"{IMPORT}: expected the name of a module, such as my_decoder")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # last, so that no file there shadows an installed one
        try:
            import_module(module.removesuffix(".py"))
        except Exception as error:  # the user's module may raise anything
            raise InputError(f"{IMPORT} {module}: {type(error).__name__}: {error}") from error
        USER_MODULES.append(module)
    return others
