"""The keys of a training's configuration as Markdown, read from LightningCLI's parser.

`keys_text` lists the keys of a group, or those without one (`-`). `classes_text` lists the
arguments of every class of this package that a key may name, or those of one class.
"""

import argparse
import collections.abc
import inspect
import re
import sys
import types
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from .options import lightning_parser, plain

COMPUTED = {
    "trainer.precision": "`bf16-mixed` where bfloat16 is fast, else `32-true`",
    "kernels": "`on`, or the environment's `CAPTIONING_KERNELS`",
}
"""Defaults that depend on the machine."""

WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
FROM_DATA = {"annotation_dim", "vocab_size"}
"""Arguments that follow from the data, which no configuration may give."""

OF_CALL = {"help", "config", "print_config", "resume", "overwrite"}
"""Options of one call, which no configuration may contain."""


@cache
def keys() -> dict[str, argparse.Action]:
    """The option of every key outside of classes."""
    return {
        action.dest: action
        for action in lightning_parser()._actions
        if hasattr(action, "_typehint")
        and not action.dest.endswith(".help")
        and action.dest not in OF_CALL
    }


def class_fields() -> dict[str, type]:
    """The base class of each key that names a class of this package."""
    hints = {key: _class_of(action._typehint) for key, action in keys().items()}
    return {key: kind for key, kind in hints.items() if kind and _is_ours(kind)}


def classes(parent: type) -> list[type]:
    """The subclasses that a package of ours exports, and the class itself if it can be made."""
    lightning_parser()  # imports all parts of a training
    exported_classes, waiting = set(), [parent]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        if not _is_ours(kind):
            continue
        is_exported = class_path(kind).rpartition(".")[0] != kind.__module__
        is_abstract = any(
            getattr(getattr(kind, name, None), "__isabstractmethod__", False) for name in dir(kind)
        )
        if is_exported and not is_abstract:
            exported_classes.add(kind)
    return sorted(exported_classes, key=class_path)


def class_path(kind: type) -> str:
    """The shortest path by which a configuration may name a class."""
    parts = kind.__module__.split(".")
    packages = (".".join(parts[: n + 1]) for n in range(len(parts)))
    return next(
        f"{package}.{kind.__name__}"
        for package in packages
        if vars(sys.modules[package]).get(kind.__name__) is kind
    )


@cache
def arguments(kind: type) -> dict[str, argparse.Action]:
    """The option of each argument that a configuration may give a class."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    taken = FROM_DATA & set(inspect.signature(kind).parameters)
    parser.add_class_arguments(kind, "init_args", skip=taken)
    return {
        action.dest.removeprefix("init_args."): action
        for action in parser._actions
        if hasattr(action, "_typehint") and not action.dest.endswith(".help")
    }


def keys_text(group: str) -> str:
    """The keys of a group as Markdown."""
    lines: list[str] = []
    for key, action in keys().items():
        if (key.partition(".")[0] if "." in key else "-") == group:
            lines.append(_entry(key, action))
    for action in lightning_parser()._actions:  # links, with the arrow in their name
        for source, arrow, target in (flag.partition(" --> ") for flag in action.option_strings):
            if arrow and target.startswith(f"{group}."):
                lines.append(f"- `{target}` follows from `{source}` and cannot be given.")
    return "\n".join(lines)


def classes_text(key: str) -> str:
    """The arguments of each class that a key may name, or of one class, as Markdown."""
    fields = class_fields()
    if key in fields:
        key_classes = classes(fields[key])
    else:
        module, _, name = key.rpartition(".")
        key_classes = [getattr(import_module(module), name)]
    lines: list[str] = []
    for kind in key_classes:
        summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        lines += [f"`{class_path(kind)}`: {plain(summary)}", ""]
        lines += [_entry(name, action) for name, action in arguments(kind).items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _entry(name: str, action: argparse.Action) -> str:
    default = COMPUTED.get(name) or f"`{default_of(action)}`"
    explanation = action.help or ""
    if action.default is not None:  # Lightning's text may name its own default, which is not ours
        explanation = re.sub(r"\s*Default: (``[^`]*``|[\w.]+?)\.?$", "", explanation)
    kind = plain(type_name(action._typehint)) + ("" if default == "``" else f"; {default}")
    return f"- `{name}` ({kind}): {plain(explanation)}"


def default_of(action: argparse.Action) -> str:
    """A default as YAML writes it; empty if the key is required."""
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
    """A type as somebody who writes YAML would call it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_name(parts[0])
    if origin in (Union, types.UnionType):
        names = set(map(type_name, parts))  # typing keeps the order of whichever was made first
        return " or ".join(sorted(names, key=lambda name: (name == "null", name)))
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin in (collections.abc.Callable, type):
        return f"class of {type_name(parts[-1])}"
    if origin is dict:
        return "dictionary"
    if origin is not None:
        return f"list of {type_name(parts[0])}"
    return WORDS.get(hint) or str(getattr(hint, "__name__", hint))


def _class_of(hint: Any) -> type | None:
    """The class of a field's objects; None if it is not one class."""
    if isinstance(hint, type):
        return hint
    if get_origin(hint) is collections.abc.Callable:
        return _class_of(get_args(hint)[-1])
    parts = [_class_of(part) for part in get_args(hint)]
    return next((part for part in parts if part not in (None, type(None))), None)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("captioning.")
