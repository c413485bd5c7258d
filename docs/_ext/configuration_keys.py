"""The directives of the configuration's keys, as LightningCLI's parser and the classes tell them.

`configuration-keys GROUP` lists the keys of a group, or those without any (`-`); `class-keys KEY`
the arguments of every class of this package that a key may name.
"""

import argparse
import collections.abc
import inspect
import re
import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from captioning.numbers import in_words

from .options import lightning_parser, plain

COMPUTED = {
    "trainer.precision": "`bf16-mixed` where bfloat16 is fast, else `32-true`",
    "kernels": "`on`, or as the environment's `CAPTIONING_KERNELS` says",
}
"""Defaults that differ between machines."""

LIGHTNINGS_DEFAULT = re.compile(r"\s*Default: (``[^`]*``|[\w.]+?)\.?$")

FROM_DATA = {"annotation_dim", "vocab_size"}
"""What the data decide, and no configuration may say."""

OF_CALL = {"help", "config", "print_config", "resume", "overwrite"}
"""Options of one call, which no configuration may hold."""


@cache
def keys() -> dict[str, argparse.Action]:
    """Every key of a training's configuration outside of classes, with its option."""
    return {
        action.dest: action
        for action in lightning_parser("train")._actions
        if hasattr(action, "_typehint")
        and not action.dest.endswith(".help")
        and action.dest not in OF_CALL
    }


def linked() -> dict[str, str]:
    """The keys that others decide, which no configuration may hold, each with its source."""
    links = (
        flag.split(" --> ")
        for action in lightning_parser("train")._actions
        for flag in action.option_strings
        if " --> " in flag
    )
    return {target: source for source, target in links}


def class_fields() -> dict[str, type]:
    """The keys that name a class of this package, each with the class that it inherits from."""
    hints = {key: _class_of(action._typehint) for key, action in keys().items()}
    ours = {key: kind for key, kind in hints.items() if kind is not None}
    return {key: kind for key, kind in ours.items() if kind.__module__.startswith("captioning.")}


def classes(parent: type) -> list[type]:
    """The classes of this package that inherit from another one and can be made."""
    lightning_parser("train")  # imports all parts of a training
    found: list[type] = []
    waiting = [parent]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        ours = kind.__module__.startswith("captioning.") and not kind.__name__.startswith("_")
        if ours and not inspect.isabstract(kind) and kind not in found and kind is not parent:
            found.append(kind)
    return sorted((kind for kind in found if is_for_configurations(kind)), key=class_path)


def is_for_configurations(kind: type) -> bool:
    """Whether a class is offered by a package, as those are that a configuration should name."""
    return kind.__module__ != class_path(kind).rpartition(".")[0]


def class_path(kind: type) -> str:
    """The shortest path by which a configuration may name a class."""
    from captioning.training.permitted import _paths

    return min(_paths(kind), key=len)


@cache
def arguments(kind: type) -> dict[str, argparse.Action]:
    """What a configuration may give a class, by name."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    taken = set(inspect.signature(kind).parameters)
    parser.add_class_arguments(kind, "init_args", skip=FROM_DATA & taken)
    return {
        action.dest.removeprefix("init_args."): action
        for action in parser._actions
        if hasattr(action, "_typehint") and not action.dest.endswith(".help")
    }


def keys_text(group: str) -> str:
    """The keys of a group as Markdown, each a target of the role `confval`."""
    lines: list[str] = []
    for key, action in keys().items():
        if (key.partition(".")[0] if "." in key else "-") == group:
            lines += _entry(key, action)
    for key, source in linked().items():
        if key.startswith(f"{group}."):
            lines += [f"`{key}` follows from `{source}` and cannot be given.", ""]
    return "\n".join(lines)


def classes_text(key: str) -> str:
    """The arguments of each class that a key may name as Markdown.

    Args:
        key: of a configuration; or the path of a class whose subclasses in this package are meant.
    """
    fields = class_fields()
    found = classes(fields[key]) if key in fields else [_named(key)]
    lines: list[str] = []
    for kind in found:
        summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        lines += [f"```{{rubric}} {class_path(kind)}", "```", "", plain(summary), ""]
        for name, action in arguments(kind).items():
            lines += _entry(f"{kind.__name__}.{name}", action)
    return "\n".join(lines)


class ConfigurationKeys(SphinxDirective):
    """The keys of the group that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Type, default and meaning of each."""
        return self.parse_text_to_nodes(keys_text(self.arguments[0]))


class ClassKeys(SphinxDirective):
    """The arguments of the classes that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Type, default and meaning of each, by class."""
        return self.parse_text_to_nodes(classes_text(self.arguments[0]))


def _entry(name: str, action: argparse.Action) -> list[str]:
    default = COMPUTED.get(name) or f"`{default_of(action)}`"
    told = action.help or ""
    if action.default is not None:  # Lightning's words tell of its own default, which is not ours
        told = LIGHTNINGS_DEFAULT.sub("", told)
    return [
        f":::{{confval}} {name}",
        f":type: {plain(type_name(action._typehint))}",
        *([] if default == "``" else [f":default: {default}"]),
        "",
        plain(told),
        ":::",
        "",
    ]


def default_of(action: argparse.Action) -> str:
    """A default as YAML writes it; nothing where the key must be given."""
    value = action.default
    if getattr(action, "required", False) or value is inspect.Parameter.empty:
        return ""
    if hasattr(value, "class_path"):
        return str(value.class_path)
    if isinstance(value, type):
        return class_path(value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_name(hint: Any) -> str:
    """A type in the words of somebody who writes YAML."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return (in_words(hint) or type_name(parts[0])).removeprefix("a ")
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_name, parts)))
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin is collections.abc.Callable:
        return f"class of {type_name(parts[-1])}"
    if origin is type:
        return f"class of {type_name(parts[0])}"
    if origin is dict:
        return "dictionary"
    if origin is not None:
        return f"list of {type_name(parts[0])}"
    words = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    if hint in words:
        return words[hint]
    if hint in (None, type(None)):
        return "null"
    return str(getattr(hint, "__name__", hint))


def _class_of(hint: Any) -> type | None:
    """The class that a field's objects are of, where it is one of this package's."""
    if isinstance(hint, type):
        return hint
    if get_origin(hint) is collections.abc.Callable:
        return _class_of(get_args(hint)[-1])
    parts = [_class_of(part) for part in get_args(hint)]
    return next((part for part in parts if part not in (None, type(None))), None)


def _named(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(__import__(module, fromlist=[name]), name)
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directives."""
    app.add_directive("configuration-keys", ConfigurationKeys)
    app.add_directive("class-keys", ClassKeys)
    return {"parallel_read_safe": True}
