"""Commands as functions of Python, such as ``captioning.evaluate(data="coco", beam=3)``."""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from captioning.commands import COMMANDS


def python_function(command: str) -> Callable[..., Any]:
    """Return the function of a command, with the options of the command line as keywords.

    Values are passed on as they are, without the checks of the command line. A string may stand for
    a path, and one value for a tuple.
    """
    module, _, attribute = COMMANDS[command].partition(":")
    function = getattr(import_module(module), attribute)
    signature = inspect.signature(function)
    groups: dict[str, Any] = {}  # classes of options by the argument that takes them
    arguments: dict[str, str] = {}  # of the function and of the classes, by keyword
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        owner: Any = function
        options = [parameter]
        if is_dataclass(parameter.annotation):
            owner = groups[parameter.name] = parameter.annotation
            options = [*inspect.signature(owner).parameters.values()]
        types = get_type_hints(owner)
        for option in options:
            keyword = _keyword(option)
            kind = option.kind if owner is function else inspect.Parameter.KEYWORD_ONLY
            arguments[keyword] = option.name
            annotation = types[option.name]
            parameters.append(option.replace(name=keyword, kind=kind, annotation=annotation))
    flat_signature = signature.replace(parameters=parameters)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values = {
            arguments[keyword]: _converted(value, flat_signature.parameters[keyword].annotation)
            for keyword, value in flat_signature.bind(*args, **kwargs).arguments.items()
        }
        for argument, group in groups.items():
            names = inspect.signature(group).parameters.keys() & values.keys()
            values[argument] = group(**{name: values.pop(name) for name in names})
        bound = inspect.BoundArguments(signature, values)
        return function(*bound.args, **bound.kwargs)

    call.__signature__ = flat_signature  # type: ignore[attr-defined]
    return call


def _keyword(parameter: inspect.Parameter) -> str:
    """Return the name that the command line has for a parameter, if any, or its own name."""
    for metadata in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(metadata, Parameter):
            for name in metadata.name or ():
                if name.startswith("--"):
                    return name.removeprefix("--").replace("-", "_")
    return parameter.name


def _converted(value: Any, annotation: Any) -> Any:
    """Convert strings to paths, paths to strings and one value to a tuple, as annotated."""
    types = get_args(annotation) or (annotation,)
    if isinstance(value, list | tuple):
        return tuple(_path_or_text(member, types) for member in value)
    value = _path_or_text(value, types)
    return (value,) if get_origin(annotation) is tuple else value


def _path_or_text(value: Any, types: Sequence[Any]) -> Any:
    if isinstance(value, str) and Path in types:
        return Path(value)
    if isinstance(value, os.PathLike) and str in types:
        return os.fspath(value)
    return value
