"""Configurations are untrusted data: they are bounded in size, and may only name listed classes.

jsonargparse imports every path that a configuration names where a class or a callable may stand,
and checks its type afterwards. Within `allow_list` it imports nothing but listed classes, which
have been imported already: a configuration can neither import a module nor reach a function.
"""

import argparse
import copy
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from inspect import isfunction, isroutine, signature
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace, get_loader, set_loader, set_parsing_settings
from jsonargparse._common import parsing_settings
from pytorch_lightning import callbacks, loggers, strategies
from pytorch_lightning.cli import LightningArgumentParser

from captioning.errors import InputError, UsageError
from captioning.shelf import config_names, config_path_of
from captioning.untrusted import MAX_YAML_BYTES, check_values, check_yaml, plain, text_of

MODE = "bounded_yaml"
"""Name of `bounded_yaml` as a mode of jsonargparse's parsers."""

LIGHTNING = (
    callbacks.EarlyStopping,
    callbacks.GradientAccumulationScheduler,
    callbacks.ModelCheckpoint,
    loggers.CSVLogger,
    loggers.WandbLogger,
    strategies.DDPStrategy,
)
"""Allow-list of Lightning's classes, beside this package's and those of ``--import``."""

KERNELS = ("captioning.kernels",)
"""Packages of ours whose classes a configuration may not name."""

ON_COMMAND_LINE_ONLY = ("config", "import", "print_config", "resume", "overwrite")

CONFIG_FLAGS = ("-c", "--config")

MOST = 400
"""Characters of a parser's message, which may quote a whole configuration."""

VERBOSE = (
    r"Type \S+\[.*?\] expects a function or a callable class: ",
    r"Does not validate against any of the Union subtypes Subtypes: \[.*?\] Errors: - ",
    r" - Not a valid subclass of .*$",
    r"( - Expected a null)? Given value type: \w+",
    r"\. Add the import path to import_path_allowlist in set_parsing_settings to allow it\.?",
    r", denied by the '\*' entry of the import path denylist",
    r"\. Got value: Namespace\(.*$",
    r"\d+ validation errors? for [\w-]+ ",
    r" \[type=\w+.*?For further information visit \S+?(?=\. Got| |$)",
)
"""Parts of jsonargparse's and pydantic's messages that say nothing about the input."""

UNKNOWN = (
    r"(?:Group '([\w.]+)' does not accept option '|unrecognized arguments: --|Option ')([\w.-]+)"
)
"""The parts of jsonargparse's messages that name an unknown option."""

NOT_ALLOWED = r"Importing '([\w.]+)' is not allowed|Expected a dot import path string: ([\w.]+)"
"""The parts of jsonargparse's messages that name a class outside of the allow-list."""

OWN_CLASS = "a class of your own needs --import MODULE; see docs/configuration.md"

_load = get_loader("yaml")


def bounded_yaml(text: str) -> Any:
    """The value of YAML text, of a file or an option, in bounded time and memory.

    Raises:
        yaml.YAMLError: it is not YAML of plain values, too large, or nested too deeply.
    """
    check_yaml(text)
    try:
        value = _load(text)
        check_values(value)
        if _has_dict_kwargs(value):  # which jsonargparse may merge into init_args unseen
            raise yaml.YAMLError("dict_kwargs is not allowed; give init_args instead")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise yaml.YAMLError(plain(error)) from None  # numbers and dates that Python cannot read
    return value


def _has_dict_kwargs(value: Any) -> bool:
    if isinstance(value, dict):
        return any("dict_kwargs" in str(key).split(".") for key in value) or any(
            map(_has_dict_kwargs, value.values())
        )
    return isinstance(value, list | tuple) and any(map(_has_dict_kwargs, value))


set_loader(MODE, bounded_yaml, exceptions=(yaml.YAMLError,))


class ConfigurationParser(LightningArgumentParser):
    """A parser that never reads a value as the path of another configuration."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add a class whose fields read no files."""
        added: list[str] = super().add_class_arguments(*args, **{**kwargs, "sub_configs": False})
        return added


@contextmanager
def allow_list(modules: Sequence[str]) -> Iterator[frozenset[str]]:
    """Let jsonargparse import listed classes only, within the block, which gets their paths.

    Args:
        modules: the user's imported modules.
    """
    ours = ("captioning", *modules)
    paths = frozenset(
        f"{name}.{attribute}"
        for name, module in list(sys.modules.items())
        if _is_within(name, (*ours, "pytorch_lightning"))
        for attribute, value in list(vars(module).items())
        if isinstance(value, type) and (value in LIGHTNING or _is_within(value.__module__, ours))
        if not _is_within(value.__module__, KERNELS)  # which stand in for parts by themselves
    )
    before = copy.copy(parsing_settings)
    set_parsing_settings(
        config_read_mode_fsspec_enabled=False,  # a configuration is a file, never an address
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,  # fields without a type get plain values
        import_path_denylist=["*"],
        import_path_allowlist=sorted(paths),
    )
    try:
        yield paths
    finally:
        parsing_settings.update(before)


def _is_within(module: str, packages: Sequence[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def with_config_paths(arguments: Sequence[str]) -> list[str]:
    """LightningCLI's arguments, with the paths of configurations that are given by name."""
    found: list[str] = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if found and found[-1] in CONFIG_FLAGS:
            argument = config_path_of(argument)
        elif equals and flag in CONFIG_FLAGS:
            argument = f"{flag}={config_path_of(value)}"
        found.append(argument)
    return found


def check_files(arguments: Sequence[str]) -> None:
    """Check every configuration file among LightningCLI's arguments.

    Raises:
        UsageError: a file is missing, is not a mapping, or has an option of the command line, or
            another option names a pipe.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(*CONFIG_FLAGS, action="append", nargs="?", default=[])
    found, others = finder.parse_known_args(arguments)
    for option in (text.partition("=")[0] for text in others if text.startswith("--")):
        if "dict_kwargs" in option.split("."):
            raise UsageError(f"{option}: not allowed; give init_args instead")
    for value in (text.partition("=")[2] or text for text in others):
        if _is_pipe(value):  # jsonargparse would read options such as --trainer FILE, and wait
            raise UsageError(f"{value}: a pipe; only --config reads pipes, so give a file")
    for path in map(Path, filter(None, found.config)):
        if not path.exists():
            names = ", ".join(config_names())
            raise UsageError(f"{path}: no such configuration; give a file, or one of {names}")
        try:
            content = bounded_yaml(text_of(path, MAX_YAML_BYTES))
        except (InputError, yaml.YAMLError) as error:
            reason = " ".join(str(error).removeprefix(f"{path}: ").split())
            raise UsageError(f"{path}: not YAML ({reason}); correct it there") from None
        if not isinstance(content, dict):
            raise UsageError(f"{path}: not a configuration; see captioning train --help")
        for key, part in content.items():
            if isinstance(part, list):
                raise UsageError(
                    f"{path}: {key} is not a mapping; captioning train --help lists examples"
                )
        for key in ON_COMMAND_LINE_ONLY:
            if content.get(key, False) is not False:
                raise UsageError(f"{path}: {key} is allowed on the command line only, as --{key}")


def _is_pipe(value: str) -> bool:
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(os.stat(value).st_mode)  # noqa: PTH116 (a Path raises on long names)
    return False


def check_parsed(value: Any, allowed: Collection[str], key: str = "") -> None:
    """Reject a parsed configuration that names anything but allowed classes.

    jsonargparse lets methods of an allowed class pass, such as one that unpickles a file, and would
    call them when it builds the objects.

    Args:
        value: the configuration, or the part of it at `key`.
        allowed: the paths of classes.
        key: such as ``model.decoder``.

    Raises:
        UsageError: a class, a key or a function is not allowed, or a value is W&B's settings.
    """
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        path = value.get("class_path")
        if path is not None and path not in allowed:
            raise UsageError(f"{key}: a configuration may not name the class {path!r}")
        if str(path).endswith(".WandbLogger") and (value.get("init_args") or {}).get("settings"):
            # They include the address that W&B's key is sent to.
            raise UsageError(f"{key}: W&B's settings come from its environment variables only")
        for name, part in value.items():
            whole = f"{key}.{name}" if key else str(name)
            if name == "dict_kwargs" or str(name).startswith("__"):
                raise UsageError(f"{whole}: not allowed; give init_args instead")
            check_parsed(part, allowed, whole)
    elif isinstance(value, list | tuple | set):
        for part in value:
            check_parsed(part, allowed, key)
    elif isroutine(value) or isinstance(value, partial):
        raise UsageError(f"{key}: a configuration may not name a function; give a class")


def one_line(message: str, options: Collection[str], allowed: Collection[str]) -> str:
    """The message of jsonargparse in one line, with a remedy.

    For unknown options, one of `options` or an argument of the `allowed` classes is suggested.
    """
    line = _flat(message)
    for verbose in VERBOSE:
        line = re.sub(verbose, "", line)
    keys = re.findall(r'Parser key "([\w.]+)": ', line)
    line = re.sub(r'(Parser key "([\w.]+)": )+', f"{'.'.join(keys)}: ", line)
    line = line if len(line) <= MOST else f"{line[:MOST]}..."
    if "arguments are required" in line:
        if keys:
            return f"{line}; give them in the init_args of {'.'.join(keys)}"
        return f"{line}; start from a configuration: captioning train --config configs/shapes.yaml"
    if named := re.search(NOT_ALLOWED, line):
        name = named[1] or named[2]
        key = line.partition(": ")[0]
        names = [*allowed, *(path.rpartition(".")[2] for path in allowed)]
        near = get_close_matches(name, sorted(names), 1, 0.85)
        remedy = f"did you mean {near[0]!r}?" if near else OWN_CLASS
        return f"{key}: a configuration may not name {name!r}; {remedy}"
    if "import" in line.lower():
        return f"{line}; {OWN_CLASS}"
    if unknown := re.search(UNKNOWN, line):
        name = ".".join(filter(None, unknown.groups())).replace("init_args.", "")
        line = f"unknown option --{unknown[2]}" if "unrecognized arg" in unknown[0] else line
        return f"{line}; {_suggestion(name.replace('-', '_'), options, allowed)}"
    return f"{line}; see captioning train --help"


def _suggestion(name: str, options: Collection[str], allowed: Collection[str]) -> str:
    """What a user may have meant by an unknown option: another option, or a class's argument."""
    last = name.rpartition(".")[2]
    near = [name] if name in options else get_close_matches(name, options, 2, 0.85)
    if not near:  # without its group, or in another one
        by_last = {option.rpartition(".")[2]: option for option in options}
        alike = [last] if last in by_last else get_close_matches(last, by_last, 2, 0.75)
        near = [by_last[match] for match in alike]
    arguments: dict[str, str] = {}  # by name, with a class that takes it
    for path in sorted(allowed):
        module, _, kind = path.rpartition(".")
        made = vars(getattr(sys.modules[module], kind)).get("__init__")
        if isfunction(made):
            for argument in signature(made).parameters.keys() - {"self", "args", "kwargs"}:
                arguments.setdefault(argument, kind)
    if last in arguments and not near:
        return f"{last!r} is an argument of {arguments[last]}: give it in its init_args"
    near = near or get_close_matches(last, arguments, 1, 0.75)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return "see captioning train --help"


def first_cause(error: BaseException) -> str:
    """The message of the error that others were raised from, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _flat(str(error))[:MOST] or type(error).__name__


def _flat(text: str) -> str:
    """The text in one line, with names of types as people write them."""
    line = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", " ".join(text.split())).rstrip(".")
    return line.replace("NoneType", "null")
