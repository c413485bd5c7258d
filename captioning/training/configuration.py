"""Configurations as the parser of options gets them: files that have been looked through."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader
from pytorch_lightning.cli import LightningArgumentParser

from captioning.errors import InputError, UsageError
from captioning.untrusted import (
    MAX_YAML_BYTES,
    check_keys,
    check_numbers,
    check_yaml,
    plain,
    text_of,
)

MODE = "bounded_yaml"
"""The mode of jsonargparse's parsers in which nothing is parsed without bounds."""

_load = get_loader("yaml")


def bounded_yaml(text: str) -> Any:
    """The value of YAML text, of a file or an option: jsonargparse's, in bounded time and memory.

    Raises:
        yaml.YAMLError: it is no YAML of plain values, too large, or nested too deep.
    """
    check_yaml(text)
    try:
        value = _load(text)
        check_keys(value)
        check_numbers(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Of numbers and dates that Python does not have.
        raise yaml.YAMLError(plain(error)) from None
    return value


set_loader(MODE, bounded_yaml, exceptions=(yaml.YAMLError,))


class ConfigurationParser(LightningArgumentParser):
    """A parser that takes no value for the path of another configuration."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add a class whose fields read no files."""
        added: list[str] = super().add_class_arguments(*args, **{**kwargs, "sub_configs": False})
        return added


def check_files(arguments: Sequence[str], groups: Collection[str]) -> None:
    """Look through every configuration file among the arguments, and name one that will not do.

    Args:
        arguments: LightningCLI's.
        groups: the keys that hold further keys, such as ``trainer``.

    Raises:
        UsageError: a file is missing, no YAML mapping, or reaches for what is not its own.
    """
    for name in _config_files(arguments):
        path = Path(name)
        if not path.exists():
            raise UsageError(f"{path}: no such configuration; check the path")
        try:
            content = bounded_yaml(text_of(path, MAX_YAML_BYTES))
        except (InputError, yaml.YAMLError) as error:
            reason = " ".join(str(error).removeprefix(f"{path}: ").split())
            raise UsageError(f"{path}: not YAML ({reason}); correct it there") from None
        if not isinstance(content, dict):
            raise UsageError(f"{path}: holds no configuration; see configs/ for examples")
        for key in content:
            of_one_call = key in ("resume", "overwrite") and content[key] is not False
            if of_one_call or key in ("config", "import", "print_config"):
                raise UsageError(f"{path}: {key} stands on the command line only, as --{key}")
            if not isinstance(key, str):
                raise UsageError(f"{path}: no option {key!r}; see captioning train --help")
            if key in groups and not isinstance(content[key], dict | None):
                raise UsageError(f"{path}: {key} is no mapping; see configs/ for examples")
        for key in _keys(content):
            if key == "dict_kwargs" or str(key).startswith("__"):
                raise UsageError(f"{path}: no key {key!r} may stand here; give init_args instead")
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        value = value if equals else "".join(arguments[index + 1 : index + 2])
        if option.removeprefix("--") in groups and not value.lstrip().startswith("{"):
            raise UsageError(f"{option}: not a configuration; give its file as --config FILE")


def given_options(arguments: Sequence[str]) -> Iterator[str]:
    """The options on the command line and in its configurations, such as ``model.learning_rate``.

    What a class gets is named as on the command line, without ``init_args``.

    Args:
        arguments: LightningCLI's, whose files `check_files` has looked through.
    """
    for name in _config_files(arguments):
        yield from _dotted(bounded_yaml(text_of(Path(name), MAX_YAML_BYTES)))
    for argument in arguments:
        if argument.startswith("--"):
            yield argument.partition("=")[0].removeprefix("--").replace("init_args.", "")


def _dotted(value: Any, prefix: str = "") -> Iterator[str]:
    for key, part in value.items():
        if key in ("class_path", "init_args"):
            within = prefix
        else:
            within = f"{prefix}.{key}" if prefix else str(key)
            yield within
        if isinstance(part, dict):
            yield from _dotted(part, within)


def _config_files(arguments: Sequence[str]) -> Iterator[str]:
    for index, argument in enumerate(arguments):
        if argument in ("-c", "--config"):
            yield from arguments[index + 1 : index + 2]
        elif argument.startswith("--config="):
            yield argument.removeprefix("--config=")
        elif argument.startswith("-c"):  # as argparse reads it: -cFILE
            yield argument.removeprefix("-c")


def _keys(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        for part in value.values():
            yield from _keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)
