"""The parts of a training, built from YAML files and options."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytorch_lightning as pl
import yaml
from annotated_types import Interval
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import (
    Checkpoint,
    LearningRateMonitor,
    ProgressBar,
    WeightAveraging,
)
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.captioner.device import fast_precision
from captioning.data.data_module import CaptionData
from captioning.errors import InputError, UsageError
from captioning.files import made_folder
from captioning.integrity import bounded_parameters
from captioning.kernels import on_by_default
from captioning.numbers import Count, PositiveCount, Seed, shown, unmet_requirement
from captioning.progress_bar import say, stage
from captioning.training.callbacks import NumberedSteps, Progress, StopEarly
from captioning.training.checkpoints import BestCheckpoint, LastCheckpoint, WholeCheckpoints
from captioning.training.configuration import (
    ConfigurationParser,
    allow_list,
    check_parsed,
    one_line,
    with_config_paths,
)
from captioning.training.initial import words_of
from captioning.training.loggers import EveryStepOnce, loggers
from captioning.training.module import CaptioningModule
from captioning.training.run_folder import RunFolder
from captioning.training.validation_grounding import ValidationGrounding
from captioning.training.validation_images import ValidationPage, ValidationTable
from captioning.user_modules import IMPORT, import_modules, split_imports

LIMITS: dict[str, Any] = {
    "seed_everything": Seed,
    "early_stopping.patience": Count,
    "trainer.max_epochs": PositiveCount | Literal[-1],
    "trainer.accumulate_grad_batches": PositiveCount,
    "trainer.check_val_every_n_epoch": PositiveCount,
    "trainer.gradient_clip_val": Annotated[float, Interval(ge=0, le=1_000_000)],
    "trainer.log_every_n_steps": Count,
    "trainer.num_sanity_val_steps": Count | Literal[-1],
    # Not the true ones of less or more than 32 bits: the losses are computed in single precision.
    "trainer.precision": Literal["32-true", "bf16-mixed", "16-mixed", "32", "bf16", "16", 32, 16],
}
"""Ranges of Lightning's options that it does not check itself."""

DIGITS = 18
"""The most digits of a whole number for Lightning's options; larger ones overflow in its code."""

WHERE = ("accelerator", "devices", "num_nodes", "strategy", "plugins")
"""The trainer's options for hardware and processes."""


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 10**DIGITS


def _listed(value: Any) -> list[Any]:
    """What a configuration gives as a list, as one thing, or not at all."""
    return list(value) if isinstance(value, list | tuple) else [value] if value else []


class TrainCLI(LightningCLI):
    """The parts of a training, built from YAML files and options.

    Args:
        arguments: LightningCLI's options, such as ``--config configs/shapes.yaml``, and
            ``--import`` with the modules of further classes.

    Raises:
        InputError: options or data are invalid.

    Attributes:
        is_trial: whether a few batches are only tried out, which writes no files.
        folder: the run's folder.
    """

    command = "captioning train"

    def __init__(self, arguments: list[str]) -> None:
        modules, options = split_imports(arguments)
        options = with_config_paths(options)
        import_modules(modules)
        with allow_list(modules):
            super().__init__(
                CaptioningModule,
                CaptionData,
                args=options,
                run=False,
                seed_everything_default=0,
                trainer_defaults={
                    "enable_model_summary": False,
                    "log_every_n_steps": 10,
                    "precision": fast_precision(),
                    # In inference mode, autocast would cast all weights again at every word.
                    "inference_mode": False,
                },
                save_config_callback=None,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                parser_class=ConfigurationParser,
                parser_kwargs={
                    "exit_on_error": False,
                    "allow_abbrev": False,
                    "prog": self.command,
                },
            )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link what the data decide to the model, and add the options of this command."""
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.link_arguments(
            ("model.initial", "data.tokenizer"), "data.words", compute_fn=words_of
        )
        parser.add_class_arguments(BestCheckpoint, "checkpoints")
        parser.add_lightning_class_args(StopEarly, "early_stopping")
        parser.add_lightning_class_args(ValidationTable, "validation_table")
        parser.add_lightning_class_args(ValidationPage, "validation_page")
        parser.add_lightning_class_args(ValidationGrounding, "validation_grounding")
        # The score that decides which epoch is best also decides when to stop.
        parser.link_arguments("checkpoints.monitor", "early_stopping.monitor")
        parser.link_arguments("checkpoints.mode", "early_stopping.mode")
        parser.set_defaults(
            {
                "early_stopping.patience": 5,
                # After validations; a training may end within its first epoch, before any.
                "early_stopping.check_on_train_epoch_end": False,
                "model.objective": {"class_path": "captioning.training.CrossEntropy"},
            }
        )
        parser.add_argument(
            "--resume",
            action="store_true",
            help="continue from last.ckpt in trainer.default_root_dir, or from best.ckpt",
        )
        parser.add_argument(
            "--overwrite",
            action="store_true",
            help="start again if trainer.default_root_dir contains an earlier run",
        )
        parser.add_argument(
            "--save_every",
            type=Annotated[float, Interval(ge=0, le=1_000_000)],
            default=10.0,
            help="minutes after which last.ckpt is written within a long epoch",
        )
        parser.add_argument(
            "--log_model",
            type=bool,
            default=False,
            help="keep best.ckpt as an artifact in W&B when the training ends",
        )
        parser.add_argument(
            "--compile_after",
            type=Annotated[int, Interval(ge=-1, le=1_000_000_000)],
            default=100,
            help="steps after which a training's arithmetic is compiled, which takes some 20 "
            "seconds and a C++ compiler; -1 for never",
        )
        parser.add_argument(
            "--kernels",
            type=Literal["on", "off"],
            default="on" if on_by_default() else "off",
            help="off: compute with the plain model alone: slower, the same numbers",
        )
        parser.epilog = (
            f"{IMPORT} MODULE, any number of times, lets the configuration name the classes of "
            "your module, such as another decoder; see docs/configuration.md"
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Read the options, of which none may be unknown, of another type or out of range."""
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise InputError(f"{one_line(error)}; see {self.command} --help") from None
        check_parsed(self.config)
        for name, limits in LIMITS.items():
            wanted = unmet_requirement(limits | None, self.config[name])
            if wanted:
                raise UsageError(f"{name}: give {wanted}, not {shown(self.config[name])}")
        for name, value in vars(self.config.trainer).items():
            is_text = isinstance(value, str) and value.isdecimal()  # of devices
            too_large = len(value) > DIGITS if is_text else _is_large(value)
            if too_large:
                raise UsageError(f"trainer.{name}: give a smaller number than {shown(value)}")
        options = self.config.trainer
        self.shows_progress = options.enable_progress_bar is not False
        self.is_trial = bool(options.fast_dev_run)
        self.folder = RunFolder(Path(options.default_root_dir or "runs/captioning"))

    def instantiate_classes(self) -> None:
        """Build what the options describe; a class may refuse its arguments, or lack a package."""
        try:
            with stage("building the model", self.shows_progress), bounded_parameters():
                super().instantiate_classes()
            self.model.kernels = self.config.kernels == "on"
        except (ImportError, LookupError, TypeError, ValueError) as error:
            raise UsageError(
                f"the configuration's parts cannot be built: {one_line(error)}; correct its "
                "init_args"
            ) from error

    def before_instantiate_classes(self) -> None:
        """Reject an unsuitable folder before anything slow begins."""
        if self.is_trial:
            return
        self.folder.resumed(self.config.resume, self.config.overwrite)
        made_folder(self.folder.path)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer, with our callbacks, and with our loggers if the configuration has none."""
        chosen = self.config_init.trainer
        callbacks = _listed(chosen.callbacks)
        logger = chosen.logger
        self.folder.check_writers(callbacks + _listed(logger))
        callbacks.append(NumberedSteps(self.config.data.seed, self.config.compile_after))
        if self.is_trial:
            logger = False
        else:
            best = self.config_init.checkpoints
            best.dirpath = str(self.folder.path)
            # The last one after the best one, whose score it stores.
            callbacks += [best, LastCheckpoint(self.folder.last, self.config.save_every)]
            if logger is None:
                logger = loggers(self.folder.path, self.settings(), self.config.resume)
                callbacks.append(EveryStepOnce())
        if logger:
            callbacks.append(LearningRateMonitor(logging_interval="step"))
        changes = {
            "logger": logger,
            "callbacks": callbacks,
            "default_root_dir": str(self.folder.path),
        }
        if self.shows_progress and not any(isinstance(each, ProgressBar) for each in callbacks):
            callbacks.append(Progress())
            changes["enable_progress_bar"] = False  # no further one of Lightning's
        try:
            trainer: Any = super().instantiate_trainer(**(kwargs | changes))
        except (RuntimeError, TypeError, ValueError) as error:  # unknown names, callbacks twice
            reason = " ".join(str(error).split())
            raise InputError(f"trainer: {reason}; see {self.command} --help") from None
        announce_wait(trainer.num_nodes, getattr(trainer.strategy, "cluster_environment", None))
        # Averaged weights are swapped out when a validation ends; callbacks that show them come
        # before that, checkpoints after.
        trainer.callbacks.sort(
            key=lambda callback: (
                isinstance(callback, Checkpoint),
                isinstance(callback, WeightAveraging),
            )
        )
        assert isinstance(trainer, pl.Trainer)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # unless another was chosen
            trainer.strategy.checkpoint_io = WholeCheckpoints()
        return trainer

    def settings(self) -> dict[str, Any]:
        """The configuration as plain values, without options of this call only."""
        once = self.config.clone()
        once.resume = once.overwrite = False
        # Without its nulls a file would fall back to the defaults, such as downloaded weights.
        settings: dict[str, Any] = yaml.safe_load(self.parser.dump(once, skip_unset=False))
        return settings


def announce_wait(machines: int, environment: Any) -> None:
    """Say for whom the first process of each machine waits before they start together.

    Args:
        machines: their number.
        environment: Lightning's cluster environment.
    """
    if machines > 1 and environment.local_rank() == 0:
        say(
            f"machine {environment.node_rank() + 1} of {machines} waits for the others at "
            f"{environment.main_address}, port {environment.main_port}"
        )


class FeaturesCLI(TrainCLI):
    """The parts of a training, of which `captioning features` uses data and encoder."""

    command = "captioning features"

    def before_instantiate_classes(self) -> None:
        """Reject a configuration without a folder for features; a run's folder is not used."""
        if not self.config.data.features:
            raise UsageError(
                "data.features names no folder for the features; give --data.features DIR"
            )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A trainer that starts the processes and writes no files."""
        trainer = pl.Trainer(
            **{name: self.config_init.trainer[name] for name in WHERE},
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        announce_wait(trainer.num_nodes, getattr(trainer.strategy, "cluster_environment", None))
        return trainer
