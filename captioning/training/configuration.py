"""Restrictions of configurations of other people, and messages about mistakes in them.

jsonargparse imports every path that a configuration names where a class or a callable may stand,
and checks its type afterwards. Within `restrictions` it accepts only listed classes, which have
been imported already, so a configuration can neither import a module nor reach a function.
"""

import copy
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wandb
import yaml
from jsonargparse import ArgumentError, get_loader, set_loader, set_parsing_settings
from jsonargparse._common import parsing_settings
from lightning_fabric.utilities.warnings import PossibleUserWarning
from pytorch_lightning import callbacks, loggers, strategies
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from captioning.configurable import USER_MODULES
from captioning.errors import InputError, format_value, reading, removal_message
from captioning.files import read_text
from captioning.models.model import limited_parameters
from captioning.shelf import config_names, config_path_of

LIGHTNING = (
    callbacks.EarlyStopping,
    callbacks.GradientAccumulationScheduler,
    callbacks.ModelCheckpoint,
    loggers.CSVLogger,
    loggers.WandbLogger,
    strategies.DDPStrategy,
)
"""Allow-list of Lightning's classes, in addition to this package's and those of ``--import``."""

TEXT_KEYS = ("kernels",)
"""Top-level keys whose values are texts; for any other key, jsonargparse would read a text as the
path of a file."""

LOAD_YAML = get_loader("yaml")
"""jsonargparse's loader of YAML, which reads 1e-3 as a number."""

IGNORED = (
    # LightningCLI gets its own arguments, without the word train.
    "LightningCLI's args parameter is intended to run from within Python.*",
    # The run's folder has a config.yaml before the first checkpoint; an earlier run was refused.
    "Checkpoint directory .* exists and is not empty.*",
    "Experiment logs directory .* exists and is not empty.*",
    # Lightning's own use of jsonargparse and torch.
    r"\s*By default only one Jsonargparse.*",
    r".*isinstance\(treespec, LeafSpec\).*",
    r"torch\.distributed\.nn\.functional\.all_gather is deprecated.*",
)
"""Warnings of Lightning and W&B that do not apply, in addition to `PossibleUserWarning`."""

MAX_DEPTH = 100
"""Maximum depth of lists and mappings in a configuration."""


def lightning_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments of LightningCLI, with paths in place of names of configurations.

    Raises:
        InputError: a configuration is missing or malformed, or would change earlier runs.
    """
    lightning: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, name = argument.partition("=")
        if flag not in ("-c", "--config"):
            lightning.append("--help" if argument == "--help-all" else argument)
            continue
        path = config_path_of(name if equals else next(remaining, ""))
        if not Path(path).is_file():
            names = ", ".join(config_names())
            line = f"{path}: no such file; give one, or one of {names}"
            raise InputError(removal_message(path) or line)
        _check_keys(path)
        lightning.append(f"--config={path}")
    return lightning


def _check_keys(path: str) -> None:
    """Raise InputError unless a file holds a configuration that leaves earlier runs alone."""
    with reading(path, yaml.YAMLError):
        content = yaml_value(read_text(path))
    if not isinstance(content, dict) or any(isinstance(part, list) for part in content.values()):
        raise InputError(f"{path}: not a configuration; see captioning train --help")
    for key, part in content.items():
        if isinstance(part, str) and key not in TEXT_KEYS:
            raise InputError(f"{path}: {key} cannot be {format_value(part)}; write its keys there")
    for key in ("resume", "overwrite"):
        if content.get(key):
            raise InputError(f"{path}: {key} is allowed on the command line only, as --{key}")


def yaml_value(text: str) -> Any:
    """The value of YAML without aliases, which could let a short text stand for a huge value.

    Raises:
        YAMLError: the text is not YAML, has an alias, or is nested deeper than `MAX_DEPTH`.
    """
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):  # lazily: deep brackets take minutes to scan
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases such as *name are not allowed; write the value again")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} levels deep")
    return LOAD_YAML(text)


@contextmanager
def restrictions() -> Iterator[None]:
    """Restrict jsonargparse to listed classes, and models to bounded sizes.

    Errors of libraries within the block become InputErrors.
    """
    previous_settings = copy.copy(parsing_settings)
    set_loader("yaml", yaml_value, (yaml.YAMLError,))  # also of texts that are values
    set_parsing_settings(
        config_read_mode_fsspec_enabled=False,  # a configuration is a file, never an address
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,  # fields without a type get plain values
        import_path_denylist=["*"],
        import_path_allowlist=sorted(allowed_paths()),
    )
    try:
        with limited_parameters():
            yield
    except ArgumentError as error:
        raise InputError(f"{one_line(error)}; see captioning train --help") from None
    except (ImportError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"the training's parts cannot be built: {one_line(error)}") from error
    finally:
        parsing_settings.update(previous_settings)
        set_loader("yaml", LOAD_YAML, (yaml.YAMLError,))


def allowed_paths() -> set[str]:
    """Import paths of the classes that a configuration may name.

    These are `LIGHTNING` and the classes of this package and of ``--import``. Kernels are excluded;
    they replace plain classes automatically.
    """
    packages = tuple(f"{name}." for name in ("captioning", *USER_MODULES))
    paths = set()
    for module_name, module in list(sys.modules.items()):
        if not f"{module_name}.".startswith((*packages, "pytorch_lightning.")):
            continue
        for name, value in list(vars(module).items()):
            if not isinstance(value, type) or value.__module__.startswith("captioning.kernels."):
                continue
            if value in LIGHTNING or f"{value.__module__}.".startswith(packages):
                paths.add(f"{module_name}.{name}")
    return paths


def checked_writers(option: Any, folder: Path) -> list[Any]:
    """The loggers or callbacks of a trainer's option, which holds one, several or none, as a list.

    Raises:
        InputError: one would write outside of the run's folder, or has settings of W&B, such as the
            address that its key is sent to.
    """
    writers: list[Any] = []
    if isinstance(option, list | tuple):
        writers.extend(option)
    elif option:
        writers.append(option)
    for writer in writers:
        path = folder
        if isinstance(writer, loggers.WandbLogger):
            if writer._wandb_init.get("settings"):
                raise InputError(
                    "trainer.logger: W&B's settings come from its environment variables"
                )
            path = Path(writer._wandb_init["dir"] or folder)
        elif isinstance(writer, callbacks.ModelCheckpoint):
            path = Path(writer.dirpath or folder)  # `WholeCheckpoints` checks its file names
        elif isinstance(writer, loggers.CSVLogger):
            path = Path(writer.log_dir)
        check_within(folder, path)
    return writers


def check_within(folder: Path, path: Path) -> None:
    """Raise InputError if a path to write to lies outside of the run's folder."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path}: outside of the run's folder; name one in {folder}")


def one_line(error: BaseException) -> str:
    """The message of a library's error in one line of at most 400 characters."""
    line = removal_message(error) or " ".join(str(error).split()) or type(error).__name__
    if "import_path_" in line:
        line = line.partition(" Add the import path")[0]
        line += " A configuration may name classes of captioning and of modules given by --import."
    return line if len(line) <= 400 else f"{line[:400]}..."


@contextmanager
def plain_messages(remedy: str = "continue by the same command with --resume") -> Iterator[None]:
    """Hide warnings that do not apply, and turn errors of options into InputErrors.

    An interrupt or SIGTERM, which Lightning turns into an exit, becomes a KeyboardInterrupt that
    names the remedy.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        for message in IGNORED:
            warnings.filterwarnings("ignore", message=message)
        for name in ("pytorch_lightning", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # A profiler that was asked for logs its report.
        logging.getLogger("pytorch_lightning.profilers").setLevel(logging.INFO)
        try:
            yield
        except (MisconfigurationException, RuntimeError, TypeError, ValueError) as error:
            # Raised by Lightning or torch's optimizers themselves, not by code that they called.
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            module = str(frame.f_globals.get("__name__"))
            if not module.startswith(("pytorch_lightning.", "lightning_fabric.", "torch.optim.")):
                raise
            raise InputError(f"the trainer cannot do this: {one_line(error)}") from None
        except wandb.errors.Error as error:
            line = f"W&B: {one_line(error)}; WANDB_MODE=offline trains without it"
            raise InputError(line) from None
        except SystemExit as exit:
            is_signal = isinstance(exit, SIGTERMException)  # raised outside of our handlers
            if not (is_signal or isinstance(exit.__context__, KeyboardInterrupt)):
                raise
            raise KeyboardInterrupt(f"interrupted; {remedy}") from None
