"""Configurations of other people: what they may name and write, and how mistakes are told.

jsonargparse imports every path that a configuration names where a class or a callable may stand,
and checks its type afterwards. Within `restrictions` it takes listed classes only, which have been
imported already, so a configuration can neither import a module nor reach a function.
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
from captioning.errors import InputError, reading, removed, shown
from captioning.files import text_of
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
"""Allow-list of Lightning's classes, beside this package's and those of ``--import``."""

TEXTS = ("kernels",)
"""The keys of a configuration whose values are texts; that of another part would be a path."""

LOAD_YAML = get_loader("yaml")
"""jsonargparse's own loader of YAML, by which 1e-3 is a number."""

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
"""Lightning's and W&B's warnings that do not apply here, beside those that Lightning doubts."""


def lightning_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments with the paths of configurations, which leave earlier runs alone."""
    found: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        flag, equals, name = argument.partition("=")
        if flag not in ("-c", "--config"):
            found.append("--help" if argument == "--help-all" else argument)
            continue
        path = config_path_of(name if equals else next(waiting, ""))
        if not Path(path).is_file():
            names = ", ".join(config_names())
            line = f"{path}: no such file; give one, or one of {names}"
            raise InputError(removed(path) or line)
        with reading(path, yaml.YAMLError):
            content = yaml_value(text_of(path))
        if not isinstance(content, dict) or any(isinstance(p, list) for p in content.values()):
            raise InputError(f"{path}: not a configuration; see captioning train --help")
        for name, part in content.items():
            if isinstance(part, str) and name not in TEXTS:
                raise InputError(f"{path}: {name} cannot be {shown(part)}; write its keys there")
        for key in ("resume", "overwrite"):  # which decide about earlier runs
            if content.get(key):
                raise InputError(f"{path}: {key} is allowed on the command line only, as --{key}")
        found.append(f"--config={path}")
    return found


def yaml_value(text: str) -> Any:
    """The value of YAML without aliases, by which a short text would stand for a huge value.

    Raises:
        YAMLError: it is not YAML, or has an alias.
    """
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
        raise yaml.YAMLError("aliases such as *name are not allowed; write the value again")
    return LOAD_YAML(text)


@contextmanager
def restrictions() -> Iterator[None]:
    """Within the block, jsonargparse imports listed classes only, and models have bounded sizes.

    Listed are Lightning's `LIGHTNING` and the classes of this package and of ``--import``. What
    libraries raise becomes an InputError.
    """
    ours = tuple(f"{name}." for name in ("captioning", *USER_MODULES))
    paths = {
        f"{name}.{attribute}"
        for name, module in list(sys.modules.items())
        if f"{name}.".startswith((*ours, "pytorch_lightning."))
        for attribute, value in list(vars(module).items())
        if isinstance(value, type)
        and (value in LIGHTNING or f"{value.__module__}.".startswith(ours))
        and not value.__module__.startswith("captioning.kernels.")  # they swap themselves in
    }
    before = copy.copy(parsing_settings)
    set_loader("yaml", yaml_value, (yaml.YAMLError,))  # also of texts that are values
    set_parsing_settings(
        config_read_mode_fsspec_enabled=False,  # a configuration is a file, never an address
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,  # fields without a type get plain values
        import_path_denylist=["*"],
        import_path_allowlist=sorted(paths),
    )
    try:
        with limited_parameters():
            yield
    except ArgumentError as error:
        raise InputError(f"{one_line(error)}; see captioning train --help") from None
    except (ImportError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"the training's parts cannot be built: {one_line(error)}") from error
    finally:
        parsing_settings.update(before)
        set_loader("yaml", LOAD_YAML, (yaml.YAMLError,))


def checked_writers(given: Any, folder: Path) -> list[Any]:
    """The trainer's loggers or callbacks as a list; given as one, several or none.

    Raises:
        InputError: one would write outside of the run's folder, or has settings of W&B, such as the
            address that its key is sent to.
    """
    writers = list(given) if isinstance(given, list | tuple) else [given] if given else []
    for each in writers:
        place = folder
        if isinstance(each, loggers.WandbLogger):
            if each._wandb_init.get("settings"):
                raise InputError(
                    "trainer.logger: W&B's settings come from its environment variables"
                )
            place = Path(each._wandb_init["dir"] or folder)
        elif isinstance(each, callbacks.ModelCheckpoint):
            place = Path(each.dirpath or folder)  # its names are checked by `WholeCheckpoints`
        elif isinstance(each, loggers.CSVLogger):
            place = Path(each.log_dir)
        check_within(folder, place)
    return writers


def check_within(folder: Path, place: Path) -> None:
    """Raise InputError if a place to write to lies outside of the run's folder."""
    if not place.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{place}: outside of the run's folder; name one in {folder}")


def one_line(error: BaseException) -> str:
    """A library's message in one line of moderate length."""
    line = removed(error) or " ".join(str(error).split()) or type(error).__name__
    if "import_path_" in line:
        line = line.partition(" Add the import path")[0]
        line += " A configuration may name classes of captioning and of modules given by --import."
    return line if len(line) <= 400 else f"{line[:400]}..."


@contextmanager
def plain_messages(remedy: str = "continue by the same command with --resume") -> Iterator[None]:
    """Hide warnings that do not apply, and turn errors of options into input errors.

    An interrupt or SIGTERM, which Lightning would turn into an exit, names the remedy.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        for message in IGNORED:
            warnings.filterwarnings("ignore", message=message)
        for name in ("pytorch_lightning", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # Whose report was asked for.
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
            is_signal = isinstance(exit, SIGTERMException)  # where no handler of ours raised
            if not (is_signal or isinstance(exit.__context__, KeyboardInterrupt)):
                raise
            raise KeyboardInterrupt(f"interrupted; {remedy}") from None
