"""Parts that a checkpoint can build again from plain values."""

import inspect
from typing import Any

from captioning.errors import InputError
from captioning.numbers import Checked, shown

_KINDS: dict[str, type["Configurable"]] = {}


class Configurable(Checked):
    """A part of the model that remembers the plain arguments it was made with.

    Its `config` is a dict of plain values that survives `torch.load(weights_only=True)`, and
    `build` makes the same part of it. A class takes part by inheriting from this one; only such
    classes can be built, so a foreign checkpoint cannot call anything else.
    """

    config: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _KINDS[cls.__name__] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> "Configurable":
        """Record the arguments; copying and unpickling call this without any.

        Raises:
            InputError: an argument is of another type or out of its range.
        """
        part: Configurable = super().__new__(cls, *args, **kwargs)
        bound = inspect.signature(cls.__init__).bind_partial(part, *args, **kwargs)
        bound.apply_defaults()
        plain = {name: _plain(value) for name, value in list(bound.arguments.items())[1:]}
        part.config = {"class": cls.__name__, **plain}
        return part


def _plain(value: Any) -> Any:
    """A class among the arguments is kept by its name."""
    return {"class_name": value.__name__} if isinstance(value, type) else value


def _kind(name: Any) -> type[Configurable]:
    if not isinstance(name, str) or name not in _KINDS:
        raise InputError(
            f"checkpoint needs the class {shown(name)}, which is not known here; "
            "import the module that defines it before loading"
        )
    return _KINDS[name]


def build(config: Any, **overrides: Any) -> Any:
    """The part that `config` describes, with some arguments replaced by `overrides`.

    Raises:
        InputError: `config` describes no part of a known class, or an argument is unknown, of
            another type or out of its range.
    """
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InputError(f"no part of a model is described by {shown(config)}")
    arguments = {
        name: _kind(value.get("class_name")) if isinstance(value, dict) else value
        for name, value in (config | overrides).items()
        if name != "class"
    }
    kind = _kind(config.get("class"))
    try:
        inspect.signature(kind.__init__).bind(None, **arguments)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {error}") from None
    return kind(**arguments)
