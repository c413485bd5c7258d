"""`captioning train` and `captioning features`: from a YAML file to a checkpoint or features."""

import logging
import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import wandb
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from captioning.errors import InputError
from captioning.files import only_writer
from captioning.progress_bar import say, stage
from captioning.training.callbacks import is_at_zero
from captioning.training.configuration import one_line
from captioning.training.configured_training import FeaturesCLI, TrainCLI
from captioning.training.loggers import log_best, resume_board, wandb_within
from captioning.training.run_folder import ended, resumable

IGNORED = (
    # More workers would starve a training on two cores; data.workers is there for others.
    ".*does not have many workers.*",
    # A frozen encoder should be in evaluation mode.
    r".*module\(s\) in eval mode at the start of training.*",
    # LightningCLI gets its own arguments, without the word train.
    "LightningCLI's args parameter is intended to run from within Python.*",
    # The run's folder has a config.yaml before the first checkpoint; an earlier run was refused.
    "Checkpoint directory .* exists and is not empty.*",
    "Experiment logs directory .* exists and is not empty.*",
    # Small data sets have few batches; every epoch is logged all the same.
    "The number of training batches .* is smaller than the logging interval.*",
    # Our sampler skips the images that the epoch has had, though it has no state of its own.
    r".*your dataloader is\s+not resumable.*",
    # Lightning's own use of jsonargparse and torch.
    r"\s*(By default only one Jsonargparse|``instantiate_classes`` was deprecated).*",
    r".*isinstance\(treespec, LeafSpec\).*",
    r"torch\.distributed\.nn\.functional\.all_gather is deprecated.*",
)
"""Lightning's and W&B's warnings that do not apply here."""

OF_LAUNCHERS = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE")
"""Environment variables by which launchers number processes and let them find each other."""


def train(arguments: list[str]) -> Path | None:
    """Train as the options say, with progress on stderr.

    Args:
        arguments: LightningCLI's options, such as ``--config configs/shapes.yaml``.

    Returns:
        The best checkpoint, or the last one if no validation has run; None if batches were only
        tried out (``trainer.fast_dev_run``), and in all processes but the first.

    Raises:
        InputError: options, data, a photo or a folder are invalid.
        KeyboardInterrupt: interrupted; the message says how to continue.
    """
    with without_launcher(), plain_messages():
        cli = TrainCLI(arguments)
        with stage("train", cli.shows_progress):
            if cli.is_trial:
                cli.trainer.fit(cli.model, cli.datamodule)
                return None
            return _train(cli)


def features(arguments: list[str]) -> Path | None:
    """Write the features of a training, unless they exist already.

    Args:
        arguments: the options of `train`.

    Returns:
        Their folder; None in all processes but the first.

    Raises:
        InputError: options, data or a photo are invalid, the whole encoder is trained, or the
            folder holds something else.
        KeyboardInterrupt: interrupted; the message says how to continue.
    """
    with without_launcher(), plain_messages("continue by the same command"):
        cli = FeaturesCLI(arguments)
        # Lightning sets the data up in every process, which computes them.
        with stage("features", cli.shows_progress):
            cli.trainer.validate(cli.model, datamodule=cli.datamodule, verbose=False)
        return Path(cli.config.data.features) if cli.trainer.is_global_zero else None


def _train(cli: TrainCLI) -> Path | None:
    is_first = cli.trainer.is_global_zero
    with only_writer(cli.folder.path) if is_first else nullcontext():
        resumed = cli.folder.resumed(cli.config.resume, cli.config.overwrite)
        left = None
        if resumed is not None:
            with stage(f"checking {resumed}"):
                saved = resumable(resumed, cli.model)
            left = ended(saved, cli.trainer)
            resume_board(cli.trainer, saved)
            del saved  # a second copy of the model
        if left is None:
            if is_first:
                settings = cli.settings()
                if resumed is not None:
                    for line in cli.folder.changed(settings):
                        say(line)
                cli.folder.prepare(resumed, settings)
            with wandb_within(cli.folder.path):
                cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=resumed, weights_only=True)
                if cli.config.log_model:
                    log_best(cli.trainer, cli.config_init.checkpoints, cli.settings())
    if not is_first:
        return None
    if left is not None:
        say(f"{cli.folder.path}: nothing is left to train: it {left}")
    _report(cli)
    return cli.folder.result(cli.shows_progress)


def _report(cli: TrainCLI) -> None:
    """Say how the training ended."""
    best, stopping = cli.config_init.checkpoints, cli.config_init.early_stopping
    if stopping.reason is not None:
        say(f"stopped after epoch {cli.trainer.current_epoch}: {stopping.reason}")
    if best.best_model_score is not None:
        line = f"best {best.monitor}: {best.best_model_score:.4f}"
        if is_at_zero(best.mode, best.best_model_score, None):
            line += (
                ", as no caption resembles its references yet; train for more epochs, or on more "
                "photos"
            )
        say(line)


@contextmanager
def without_launcher() -> Iterator[None]:
    """Unset the variables that Lightning sets as a launcher, once its training has ended.

    The next training of this process, or of a child, would wait for processes that nobody starts.
    """
    unset = [name for name in OF_LAUNCHERS if name not in os.environ]
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


@contextmanager
def plain_messages(remedy: str = "continue by the same command with --resume") -> Iterator[None]:
    """Hide warnings that do not apply, and turn errors of options into input errors.

    An interrupt or SIGTERM, which Lightning would turn into an exit, names the remedy.
    """
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in IGNORED:
            warnings.filterwarnings("ignore", message=message)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        except (MisconfigurationException, RuntimeError, TypeError, ValueError) as error:
            if not _is_raised_by_a_library(error):
                raise
            raise InputError(f"the trainer cannot do this: {one_line(error)}") from None
        except wandb.errors.Error as error:
            raise InputError(
                f"W&B: {one_line(error)}; WANDB_MODE=offline trains without it"
            ) from None
        except SystemExit as exit:
            is_signal = isinstance(exit, SIGTERMException)  # where no handler of ours raised
            if not (is_signal or isinstance(exit.__context__, KeyboardInterrupt)):
                raise
            raise KeyboardInterrupt(f"interrupted; {remedy}") from None
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _is_raised_by_a_library(error: Exception) -> bool:
    """Whether Lightning or torch's optimizers raised the error, not code that they called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    return module.startswith(("pytorch_lightning.", "lightning_fabric.", "torch.optim."))
