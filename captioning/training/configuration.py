"""Configurations of other people: what they may name.

jsonargparse imports every path that a configuration names where a class or a callable may stand,
and checks its type afterwards. Within `allow_list` it imports listed classes only, which have been
imported already, so a configuration can neither import a module nor reach a function.
"""

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace, set_parsing_settings
from jsonargparse._common import parsing_settings
from pytorch_lightning import callbacks, loggers, strategies
from pytorch_lightning.cli import LightningArgumentParser

from captioning.errors import InputError, reading
from captioning.shelf import config_names, config_path_of
from captioning.untrusted import text_of

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

ON_COMMAND_LINE_ONLY = ("resume", "overwrite")
"""Options that a configuration may not set, since they decide about earlier runs."""


class ConfigurationParser(LightningArgumentParser):
    """A parser that never reads a value as the path of another configuration."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add a class whose fields read no files."""
        added: list[str] = super().add_class_arguments(*args, **{**kwargs, "sub_configs": False})
        return added


@contextmanager
def allow_list(modules: Sequence[str]) -> Iterator[None]:
    """Let jsonargparse import listed classes only, within the block.

    Args:
        modules: the user's imported modules.
    """
    ours = ("captioning", *modules)
    paths = {
        f"{name}.{attribute}"
        for name, module in list(sys.modules.items())
        if _is_within(name, (*ours, "pytorch_lightning"))
        for attribute, value in list(vars(module).items())
        if isinstance(value, type) and (value in LIGHTNING or _is_within(value.__module__, ours))
        if not _is_within(value.__module__, KERNELS)  # which stand in for parts by themselves
    }
    before = copy.copy(parsing_settings)
    set_parsing_settings(
        config_read_mode_fsspec_enabled=False,  # a configuration is a file, never an address
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,  # fields without a type get plain values
        import_path_denylist=["*"],
        import_path_allowlist=sorted(paths),
    )
    try:
        yield
    finally:
        parsing_settings.update(before)


def _is_within(module: str, packages: Sequence[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def with_config_paths(arguments: Sequence[str]) -> list[str]:
    """LightningCLI's arguments, with the paths of configurations, which are checked.

    Raises:
        InputError: a configuration is missing, is not a mapping, or has an option of the command
            line.
    """
    found: list[str] = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if found and found[-1] in ("-c", "--config"):
            argument = _checked(argument)
        elif equals and flag in ("-c", "--config"):
            argument = f"{flag}={_checked(value)}"
        found.append(argument)
    return found


def _checked(config: str) -> str:
    """The file of a configuration, which is a mapping of mappings and leaves earlier runs alone."""
    path = config_path_of(config)
    if not Path(path).exists():
        raise InputError(f"{path}: no such file; give one, or one of {', '.join(config_names())}")
    with reading(path, yaml.YAMLError):
        content = yaml.safe_load(text_of(path))
    if not isinstance(content, dict) or any(isinstance(part, list) for part in content.values()):
        raise InputError(f"{path}: not a configuration; see captioning train --help")
    for key in ON_COMMAND_LINE_ONLY:
        if content.get(key):
            raise InputError(f"{path}: {key} is allowed on the command line only, as --{key}")
    return path


def check_parsed(value: Any, key: str = "") -> None:
    """Refuse a parsed configuration with settings of W&B, such as where W&B's key is sent to.

    Raises:
        InputError: it has some, or arguments that no signature has.
    """
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, list):
        for part in value:
            check_parsed(part, key)
    elif isinstance(value, dict):
        given = value.get("init_args") or {}
        is_board = str(value.get("class_path")).endswith("WandbLogger")
        if value.get("dict_kwargs") or (is_board and given.get("settings")):
            raise InputError(
                f"{key}: W&B's settings come from its environment variables only, and arguments "
                "from init_args"
            )
        for name, part in value.items():
            check_parsed(part, f"{key}.{name}" if key else str(name))


def one_line(error: BaseException) -> str:
    """A library's message in one line of moderate length."""
    line = " ".join(str(error).split()) or type(error).__name__
    if "import_path_" in line:
        line = line.partition(" Add the import path")[0]
        line += " A configuration may name classes of captioning and of modules given by --import."
    return line if len(line) <= 400 else f"{line[:400]}..."
