"""The parts of a training, built from YAML files and options."""

import re
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from jsonargparse import ArgumentError
from pytorch_lightning.callbacks import (
    Checkpoint,
    EarlyStopping,
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
from captioning.kernels import on_by_default
from captioning.progress_bar import stage
from captioning.training.callbacks import (
    BEST,
    LAST,
    BestCheckpoint,
    CompiledSteps,
    LastCheckpoint,
    SeededSteps,
)
from captioning.training.checkpoint_io import WholeCheckpoints
from captioning.training.configuration import (
    MODE,
    ConfigurationParser,
    check_files,
    given_options,
)
from captioning.training.loggers import EveryStepOnce, loggers
from captioning.training.module import CaptioningModule
from captioning.training.option_errors import first_cause, one_line
from captioning.training.permitted import arguments_of_classes, check_parsed, permit
from captioning.training.pictures import ValidationTable
from captioning.training.progress import Progress
from captioning.training.ranges import check_ranges
from captioning.training.validation_grounding import ValidationGrounding
from captioning.training.validation_history import ValidationPage
from captioning.user_modules import IMPORT, import_modules, split_imports


class TrainCLI(LightningCLI):
    """The parts of a training, built from YAML files and options.

    Args:
        arguments: LightningCLI's options, such as ``--config configs/shapes.yaml``, and
            ``--import`` with the modules of further classes that they name.

    Raises:
        InputError: options or data are not as they should be.
    """

    command = "captioning train"

    def __init__(self, arguments: list[str]) -> None:
        modules, options = split_imports(arguments)
        import_modules(modules)
        self.permitted = permit(modules)
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
                # In inference mode autocast would cast all weights anew at every word.
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
                "parser_mode": MODE,
            },
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link what data decide to the model, and add the options of this command."""
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.add_class_arguments(BestCheckpoint, "checkpoints")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_lightning_class_args(ValidationTable, "validation_table")
        parser.add_lightning_class_args(ValidationPage, "validation_page")
        parser.add_lightning_class_args(ValidationGrounding, "validation_grounding")
        # One score decides which epoch is best and when there is no hope of a better one.
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
            help="go on from last.ckpt in trainer.default_root_dir, if there is one",
        )
        parser.add_argument(
            "--save_every",
            type=float,
            default=10.0,
            help="minutes after which last.ckpt is written within a long epoch",
        )
        parser.add_argument(
            "--compile_after",
            type=int,
            default=100,
            help="steps after which a training's arithmetic is compiled, which takes some 20 "
            "seconds and a C++ compiler; -1 for never",
        )
        parser.add_argument(
            "--kernels",
            type=Literal["on", "off"],
            default="on" if on_by_default() else "off",
            help="off: the plain model alone computes, which is slower, with the same numbers",
        )
        parser.add_argument(
            "--overwrite",
            action="store_true",
            help="start anew where trainer.default_root_dir holds an earlier run",
        )
        parser.epilog = (
            f"{IMPORT} MODULE, any number of times, lets the configuration name the classes of a "
            "module of yours, such as another decoder; see docs/configuration.md"
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Read the options.

        Raises:
            UsageError: an unknown option, or a value that does not fit or is out of its range.
        """
        known = [action.dest for action in parser._actions]
        check_files(args, {name.partition(".")[0] for name in known if "." in name})
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            names = {*known, *arguments_of_classes(self.permitted)}
            raise UsageError(one_line(str(error), given_options(args), names)) from None
        except OverflowError:  # of jsonargparse, where a float is wanted
            long = next(each for each in args if re.search(r"\d{300}", each))
            before = args[max(args.index(long) - 1, 0)]
            option = (long if long.startswith("--") else before).partition("=")[0]
            raise UsageError(f"{option}: larger than any number; give a smaller one") from None
        check_parsed(self.config, self.permitted)
        check_ranges(self.config.as_dict())

    def instantiate_classes(self) -> None:
        """Build what the options describe.

        Raises:
            UsageError: a class refuses its arguments, or lacks a package.
        """
        try:
            with stage("building the model", self.tells_progress):
                super().instantiate_classes()
            self.model.captioner.uses_kernels = self.config.kernels == "on"
        except (ImportError, LookupError, TypeError, ValueError) as error:
            raise UsageError(
                f"the configuration's parts cannot be built: {first_cause(error)}; correct its "
                "init_args"
            ) from error

    @property
    def tells_progress(self) -> bool:
        """Whether anybody wants to see how far the training is."""
        return self.config.trainer.enable_progress_bar is not False

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config.trainer.default_root_dir or "runs/captioning")

    @property
    def last(self) -> Path:
        """What a training resumes from."""
        return self.folder / f"{LAST}.ckpt"

    @property
    def best(self) -> Path:
        """What a training is done for."""
        return self.folder / f"{BEST}.ckpt"

    @property
    def is_trial(self) -> bool:
        """Whether a few batches are only tried out, which leaves no files."""
        return bool(self.config.trainer.fast_dev_run)

    def before_instantiate_classes(self) -> None:
        """Refuse what cannot end well before anything slow begins."""
        if self.is_trial:
            return
        if self.last.exists() and not (self.config.resume or self.config.overwrite):
            raise InputError(
                f"{self.folder}: holds an earlier run; go on with --resume, start anew with "
                "--overwrite, or give another --trainer.default_root_dir"
            )
        made_folder(self.folder)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer, with its loggers, and its folder where the configuration names none."""
        chosen = self.config_init.trainer
        given = chosen.callbacks or []
        callbacks = [
            *(given if isinstance(given, list) else [given]),
            SeededSteps(self.config.data.seed),
            CompiledSteps(self.config.compile_after),
            self.config_init.checkpoints,
            LastCheckpoint(),  # after the best one, so that it knows how good that is
            LastCheckpoint(self.config.save_every),
        ]
        logger = chosen.logger
        if logger is None:
            resume = self.config.resume
            logger = not self.is_trial and loggers(self.folder, self.settings(), resume)
            if logger:
                callbacks.append(EveryStepOnce())
        if logger:
            callbacks.append(LearningRateMonitor(logging_interval="step"))
        if chosen.enable_progress_bar is not False and not any(
            isinstance(callback, ProgressBar) for callback in callbacks
        ):
            callbacks.append(Progress())
        changes = {"logger": logger, "callbacks": callbacks, "default_root_dir": str(self.folder)}
        try:
            trainer: Any = super().instantiate_trainer(**(kwargs | changes))
        except (TypeError, ValueError) as error:  # names that Lightning does not know
            reason = " ".join(str(error).split())
            raise InputError(f"trainer: {reason}; see {self.command} --help") from None
        # Averaged weights are taken back when a validation ends; what others show of it comes
        # before that.
        trainer.callbacks.sort(
            key=lambda callback: (
                isinstance(callback, Checkpoint),
                isinstance(callback, WeightAveraging),
            )
        )
        assert isinstance(trainer, pl.Trainer)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # no other one was chosen
            trainer.strategy.checkpoint_io = WholeCheckpoints()
        return trainer

    def settings(self) -> dict[str, Any]:
        """The configuration as plain values, without what concerns this one call only."""
        once = self.config.clone()
        once.resume = once.overwrite = False
        # Without its nulls a file would fall back to the defaults, such as downloaded weights.
        settings: dict[str, Any] = yaml.safe_load(self.parser.dump(once, skip_unset=False))
        return settings
