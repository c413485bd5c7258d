"""Parts that a checkpoint can build again from plain values."""

import inspect
from typing import Any

from captioning.errors import InputError

_KINDS: dict[str, type["Configurable"]] = {}


class Configurable:
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
        """Record the arguments; copying and unpickling call this without any."""
        part = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(part, *args, **kwargs)
        bound.apply_defaults()
        plain = {name: _plain(value) for name, value in list(bound.arguments.items())[1:]}
        part.config = {"class": cls.__name__, **plain}
        return part


def _plain(value: Any) -> Any:
    """A class among the arguments is kept by its name."""
    return {"class_name": value.__name__} if isinstance(value, type) else value


def _kind(name: str) -> type[Configurable]:
    if name not in _KINDS:
        raise InputError(
            f"checkpoint needs the class {name!r}, which is not known here; "
            "import the module that defines it before loading"
        )
    return _KINDS[name]


def build(config: dict[str, Any], **overrides: Any) -> Any:
    """The part that `config` describes, with some arguments replaced by `overrides`.

    Raises:
        InputError: the class is not known.
    """
    arguments = {
        name: _kind(value["class_name"]) if isinstance(value, dict) else value
        for name, value in (config | overrides).items()
        if name != "class"
    }
    return _kind(config["class"])(**arguments)
