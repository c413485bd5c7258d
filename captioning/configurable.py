"""Parts of a model that are stored in checkpoints as plain values and built again from them."""

import inspect
from functools import partial
from typing import Any

from captioning.errors import InputError
from captioning.numbers import Checked, shown

_KINDS: dict[str, type["Configurable"]] = {}
"""All configurable classes by module and name."""


class UnknownClassError(InputError):
    """A config names an unknown class."""


class Configurable(Checked):
    """A part of a model that stores the arguments of its constructor.

    Its `config` is a dict of plain values that `torch.load(weights_only=True)` accepts; `build`
    makes the same part from it. Only subclasses of this class can be built, so an untrusted
    checkpoint cannot call anything else. The config has the class's full name, with its module.
    """

    config: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _KINDS[full_name(cls)] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> "Configurable":
        """Check the arguments, as `Checked` does, and store them."""
        part: Configurable = super().__new__(cls, *args, **kwargs)
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


def _plain(value: Any) -> Any:
    """An argument as a plain value; a class or a partial of one becomes its name and arguments."""
    if isinstance(value, partial):  # jsonargparse's has the class among its arguments
        kind = next(part for part in (value.func, *value.args) if isinstance(part, type))
        return {"class_name": full_name(kind), **value.keywords}
    return {"class_name": full_name(value)} if isinstance(value, type) else value


def _kind(name: Any) -> type[Configurable]:
    """The class with this full name; one of this package may have moved to another module."""
    if isinstance(name, str) and name in _KINDS:
        return _KINDS[name]
    module, _, bare = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    ours = f"{__package__}."
    if module.startswith(ours):
        moved = [kind for full, kind in _KINDS.items() if full.startswith(ours)]
        moved = [kind for kind in moved if kind.__qualname__ == bare]
        if len(moved) == 1:
            return moved[0]
    remedy = "import the module that defines it before loading"
    if module and not f"{module}.".startswith(ours):
        remedy = f"give --import {module}, or in Python import {module} before loading"
    raise UnknownClassError(f"the class {shown(name)} is unknown; {remedy}")


def _class_of(value: Any) -> Any:
    """The class, or partial of a class, that an argument stands for; other values as they are."""
    if not isinstance(value, dict) or "class_name" not in value:
        return value
    kind = _kind(value["class_name"])
    arguments = {name: part for name, part in value.items() if name != "class_name"}
    return partial(kind, **arguments) if arguments else kind


def build(config: Any, **overrides: Any) -> Any:
    """The part that `config` describes, with some arguments replaced by `overrides`.

    Raises:
        InputError: the class is unknown, or an argument is unknown, has another type or is out of
            range.
    """
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InputError(f"{shown(config)} does not describe a part of a model")
    arguments = {
        name: _class_of(value) for name, value in (config | overrides).items() if name != "class"
    }
    kind = _kind(config.get("class"))
    try:
        inspect.signature(kind.__init__).bind(None, **arguments)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {error}") from None
    return kind(**arguments)
