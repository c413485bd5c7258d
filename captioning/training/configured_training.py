"""The parts of a training, built from YAML files and options."""

from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import (
    Checkpoint,
    LearningRateMonitor,
    ProgressBar,
    WeightAveraging,
)
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.data.data_module import CaptionData
from captioning.device import fast_precision
from captioning.errors import InputError
from captioning.files import made_folder
from captioning.integrity import bounded_parameters
from captioning.kernels import on_by_default
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
from captioning.training.loggers import ResumedLogs, loggers
from captioning.training.module import CaptioningModule
from captioning.training.run_folder import RunFolder
from captioning.training.validation_grounding import ValidationGrounding
from captioning.training.validation_images import ValidationPage, ValidationTable
from captioning.user_modules import IMPORT, import_modules, split_imports

WHERE = ("accelerator", "devices", "num_nodes", "strategy", "plugins")
"""The trainer's options for hardware and processes."""


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
                parser_kwargs={"exit_on_error": False, "allow_abbrev": False, "prog": self.command},
            )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link what the data decide to the model, and add the options of this command."""
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        starts = ("model.initial", "data.tokenizer")
        parser.link_arguments(starts, "data.words", compute_fn=words_of)
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
        for name, does in (
            ("resume", "continue from last.ckpt in trainer.default_root_dir, or from best.ckpt"),
            ("overwrite", "start again if trainer.default_root_dir contains an earlier run"),
        ):
            parser.add_argument(f"--{name}", action="store_true", help=does)
        kernels = "on" if on_by_default() else "off"
        options: tuple[tuple[str, Any, Any, str], ...] = (
            ("save_every", float, 10.0, "minutes between checkpoints within a long epoch"),
            ("log_model", bool, False, "keep best.ckpt as an artifact in W&B"),
            ("compile_after", int, 100, "steps before arithmetic is compiled in C++; -1: never"),
            ("kernels", Literal["on", "off"], kernels, "off: only the plain model, slower"),
        )
        for name, kind, default, does in options:
            parser.add_argument(f"--{name}", type=kind, default=default, help=does)
        parser.epilog = (
            f"{IMPORT} MODULE, any number of times, lets the configuration name the classes of "
            "your module, such as another decoder; see docs/configuration.md"
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Read the options."""
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise InputError(f"{one_line(error)}; see {self.command} --help") from None
        check_parsed(self.config)
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
            raise InputError(
                f"the configuration's parts cannot be built: {one_line(error)}; correct its "
                "init_args"
            ) from error

    def before_instantiate_classes(self) -> None:
        """Reject an unsuitable folder before anything slow begins."""
        if not self.is_trial:
            self.folder.resumed(self.config.resume, self.config.overwrite)
            made_folder(self.folder.path)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer, with our callbacks, and with our loggers if the configuration has none."""
        chosen = self.config_init.trainer
        given, logger = (
            list(each) if isinstance(each, list | tuple) else [each] if each else []
            for each in (chosen.callbacks, chosen.logger)
        )
        self.folder.check_writers(given + logger)
        callbacks = [*given, NumberedSteps(self.config.data.seed, self.config.compile_after)]
        if self.is_trial:
            logger = []
        else:
            best = self.config_init.checkpoints
            best.dirpath = str(self.folder.path)
            # The last one after the best one, whose score it stores.
            callbacks += [best, LastCheckpoint(self.folder.last, self.config.save_every)]
            if chosen.logger is None:
                logger = loggers(self.folder.path, self.settings(), self.config.resume)
                callbacks.append(ResumedLogs())
        if logger:
            callbacks.append(LearningRateMonitor(logging_interval="step"))
        changes = {"logger": logger or False, "default_root_dir": str(self.folder.path)}
        if self.shows_progress and not any(isinstance(each, ProgressBar) for each in callbacks):
            callbacks.append(Progress())
            changes["enable_progress_bar"] = False  # no further one of Lightning's
        try:
            trainer: Any = super().instantiate_trainer(**kwargs, **changes, callbacks=callbacks)
        except (RuntimeError, TypeError, ValueError) as error:  # unknown names, callbacks twice
            raise InputError(f"trainer: {one_line(error)}; see {self.command} --help") from None
        announce_wait(trainer)
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


class FeaturesCLI(TrainCLI):
    """The parts of a training, of which `captioning features` uses data and encoder."""

    command = "captioning features"

    def before_instantiate_classes(self) -> None:
        """Reject a configuration without a folder for features; a run's folder is not used."""
        if not self.config.data.features:
            raise InputError(
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
        announce_wait(trainer)
        return trainer


def announce_wait(trainer: Any) -> None:
    """Say for whom the first process of each machine waits before they start together."""
    environment: Any = getattr(trainer.strategy, "cluster_environment", None)
    if trainer.num_nodes > 1 and environment.local_rank() == 0:
        say(
            f"machine {environment.node_rank() + 1} of {trainer.num_nodes} waits for the others at "
            f"{environment.main_address}, port {environment.main_port}"
        )
