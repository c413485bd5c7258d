"""`captioning train` and `captioning features`: from YAML files to a checkpoint or features."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import LambdaCallback, LearningRateMonitor, WeightAveraging
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.captioner import Captioner, load
from captioning.configurable import IMPORT
from captioning.data.data_module import CaptionData
from captioning.data.readers import DataSet
from captioning.device import fast_precision
from captioning.errors import InputError
from captioning.files import made_folder, only_writer, remove_unfinished, written_whole
from captioning.kernels import on_by_default
from captioning.progress_bar import say, stage
from captioning.training import checkpoints, configuration, loggers, validation_images
from captioning.training.callbacks import Progress, StopEarly, is_at_zero
from captioning.training.checkpoints import BEST, CONFIG, LAST
from captioning.training.configuration import plain_messages
from captioning.training.initial import start_words
from captioning.training.module import CaptioningModule


class TrainCLI(LightningCLI):
    """The parts of a training, built from YAML files and options.

    Args:
        settings: options, or a configuration as plain values.
        start: the captioner of `model.initial`; loaded if not given.
        data_set: the data set of `data.reader`; read if not given.
    """

    @stage("building the model")
    @configuration.restrictions()
    def __init__(
        self,
        settings: list[str] | dict[str, Any],
        start: Captioner | None = None,
        data_set: DataSet | None = None,
    ) -> None:
        self.start, self.data_set = start, data_set
        epilog = (
            f"{IMPORT} MODULE, any number of times, lets the configuration name the classes of "
            "your module, such as another decoder; see docs/configuration.md"
        )
        parser = {"prog": "captioning train", "exit_on_error": False, "allow_abbrev": False}
        if isinstance(settings, list):
            settings = configuration.lightning_arguments(settings)
        super().__init__(
            CaptioningModule,
            CaptionData,
            save_config_callback=None,  # it writes before the data set has been read
            args=settings,
            run=False,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            parser_kwargs=parser | {"epilog": epilog},
        )

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the keys of all parts, whose values are never read as paths of configurations."""
        untyped = {"fail_untyped": False}
        parser.add_class_arguments(pl.Trainer, "trainer", instantiate=False, **untyped)
        parser.add_class_arguments(CaptioningModule, "model", skip={"start"}, **untyped)
        # jsonargparse would copy thousands of words for each of them, eight times.
        parser.add_class_arguments(CaptionData, "data", skip={"words"}, **untyped)
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.add_class_arguments(checkpoints.BestCheckpoint, "checkpoints")
        parser.add_class_arguments(StopEarly, "early_stopping")
        parser.add_class_arguments(loggers.ValidationTable, "validation_table")
        parser.add_class_arguments(validation_images.ValidationPage, "validation_page")
        parser.add_class_arguments(validation_images.ValidationGrounding, "validation_grounding")
        # The score that decides which epoch is best also decides when to stop.
        parser.link_arguments("checkpoints.monitor", "early_stopping.monitor")
        parser.link_arguments("checkpoints.mode", "early_stopping.mode")
        parser.set_defaults(
            {
                "trainer.enable_model_summary": False,
                "trainer.log_every_n_steps": 10,
                "trainer.precision": fast_precision(),
                # In inference mode, autocast would cast all weights again at every word.
                "trainer.inference_mode": False,
                "early_stopping.patience": 5,
                # After validations; a training may end within its first epoch, before any.
                "early_stopping.check_on_train_epoch_end": False,
                "model.objective": {"class_path": "captioning.training.CrossEntropy"},
            }
        )
        for name, description in (
            ("resume", "continue from last.ckpt in trainer.default_root_dir, or from best.ckpt"),
            ("overwrite", "start again if trainer.default_root_dir contains an earlier run"),
        ):
            parser.add_argument(f"--{name}", action="store_true", help=description)
        kernels: Any = Literal["on", "off"]
        for name, value_type, default, description in (
            ("save_every", float, 10.0, "minutes between checkpoints within a long epoch"),
            ("log_model", bool, False, "keep best.ckpt as an artifact in W&B"),
            ("compile_after", int, 100, "steps before arithmetic is compiled in C++; -1: never"),
            (
                "kernels",
                kernels,
                "on" if on_by_default() else "off",
                "off: only the plain model, slower",
            ),
        ):
            parser.add_argument(f"--{name}", type=value_type, default=default, help=description)

    def _build_module(self, module: type[CaptioningModule], **arguments: Any) -> CaptioningModule:
        return module(start=self.start, **arguments)

    def _build_data(self, data_module: type[CaptionData], **arguments: Any) -> CaptionData:
        initial = self.config.model.initial
        if self.start is None and initial is not None:
            self.start = load(initial, kernels=False)
        words = start_words(self.start, arguments["tokenizer"], arguments["keep_words"])
        data = data_module(**arguments, words=words)
        if self.data_set is not None:
            data.data_set = self.data_set
        return data

    def before_instantiate_classes(self) -> None:
        """Read from the options how and where to run; refuse an unsuitable folder or precision."""
        options = self.config.trainer
        self.folder = Path(options.default_root_dir or "runs/captioning")
        self.shows_progress = options.enable_progress_bar is not False
        self.is_trial = bool(options.fast_dev_run)  # tries a few batches, writes no files
        if options.precision in ("bf16-true", "16-true"):
            raise InputError(
                f"trainer.precision: {options.precision} rounds away most steps of the weights; "
                "take 32-true or bf16-mixed"
            )
        if not self.is_trial:
            # Before the model is built; `_fit` asks again once no other process can write there.
            checkpoints.resume_path(self.folder, self.config.resume, self.config.overwrite)
        self.settings = self._plain_settings()

    def instantiate_classes(self) -> None:
        # Unlike Lightning's, it hands the opened start and the data set on.
        instantiators: list[Any] = [
            (self._build_module, CaptioningModule, False),
            (self._build_data, CaptionData, False),
        ]
        self.config_init = self.parser.instantiate(self.config, instantiators=instantiators)
        self.model, self.datamodule = self.config_init.model, self.config_init.data
        self.trainer = self.instantiate_trainer()

    def _plain_settings(self) -> dict[str, Any]:
        """The configuration as plain values, without options of this call only."""
        config = self.config.clone()
        config.resume = config.overwrite = False
        # Without its nulls a file would fall back to the defaults, such as downloaded weights.
        settings: dict[str, Any] = yaml.safe_load(self.parser.dump(config, skip_unset=False))
        return settings

    def instantiate_trainer(self, **options: Any) -> pl.Trainer:
        """The trainer with our callbacks, and with our loggers if the configuration has none."""
        parts, config = self.config_init, self.config
        self.model.kernels, self.model.compile_after = config.kernels == "on", config.compile_after
        callbacks = configuration.checked_writers(parts.trainer.callbacks, self.folder)
        logger = configuration.checked_writers(parts.trainer.logger, self.folder)
        if self.shows_progress:
            callbacks.append(Progress())
        if self.is_trial:
            logger = []
        else:
            best = parts.checkpoints
            best.dirpath = str(made_folder(self.folder))
            callbacks += [parts.early_stopping, parts.validation_table]
            callbacks += [parts.validation_page, parts.validation_grounding]
            # The last one after the best one, whose score it stores.
            callbacks += [loggers.ResumedLogs(), best]
            callbacks.append(checkpoints.LastCheckpoint(config.save_every))
            if parts.trainer.logger is None:
                uploaded = best if config.log_model else None
                logger = loggers.loggers(self.folder, self.settings, config.resume, uploaded)
        if logger:
            callbacks.append(LearningRateMonitor(logging_interval="step"))
        # Averaged weights are swapped out when a validation ends; callbacks that show them come
        # before that, checkpoints, which Lightning moves to the end, after.
        callbacks.sort(key=lambda callback: isinstance(callback, WeightAveraging))
        if "SLURM_NTASKS" in os.environ and "SLURM_STEP_ID" not in os.environ:
            # Not a task of srun, so do not count tasks.
            os.environ["SLURM_JOB_NAME"] = "interactive"
        trainer = super().instantiate_trainer(
            callbacks=callbacks,
            logger=logger or False,
            default_root_dir=str(self.folder),
            enable_progress_bar=False,
            **options,
        )
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # no other was chosen
            trainer.strategy.checkpoint_io = checkpoints.WholeCheckpoints(self.folder)
        return trainer


def train(
    settings: list[str] | dict[str, Any],
    start: Captioner | None = None,
    data_set: DataSet | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> Path | None:
    """Train by options, or by a configuration as plain values.

    Args:
        settings: the options of LightningCLI, such as ``--config configs/shapes.yaml``, or the
            values of a configuration.
        start: the captioner of `model.initial`; loaded if not given.
        data_set: the data set of `data.reader`; read if not given.
        on_start: called when all checks have passed and an earlier run in the folder is replaced.

    Returns:
        The best checkpoint, or the last one if no validation has run; None if batches were only
        tried out (``trainer.fast_dev_run``), and in all processes but the first.

    Raises:
        InputError: options, data, a photo or a folder are invalid.
        KeyboardInterrupt: interrupted; the message says how to continue.
    """
    with plain_messages():
        cli = TrainCLI(settings, start, data_set)
        is_first = cli.trainer.is_global_zero
        try:
            with stage("train", cli.shows_progress):
                if cli.is_trial:
                    cli.trainer.fit(cli.model, cli.datamodule)
                    return None
                with only_writer(cli.folder) if is_first else nullcontext():
                    _fit(cli, on_start)
        finally:
            if cli.model.kernels:
                from captioning.kernels.compiled import compile_from_now

                compile_from_now(False)
        return _best_checkpoint(cli) if is_first else None


def _best_checkpoint(cli: TrainCLI) -> Path:
    """The best checkpoint of a training, else the last one; says the best score."""
    best, early_stopping = cli.config_init.checkpoints, cli.config_init.early_stopping
    if reason := early_stopping.stopping_reason_message:
        reason = reason.removesuffix(" Signaling Trainer to stop.")
        say(f"stopped after epoch {cli.trainer.current_epoch}: {reason}")
    if best.best_model_score is not None:
        line = f"best {best.monitor}: {best.best_model_score:.4f}"
        if is_at_zero(best.mode, best.best_model_score):
            line += ", as no caption resembles its references yet; give more epochs or photos"
        say(line)
    if (cli.folder / BEST).exists():
        return cli.folder / BEST
    if cli.shows_progress:
        say(f"there is no {BEST}: no validation has run")
    return cli.folder / LAST


def _fit(cli: TrainCLI, on_start: Callable[[], None]) -> None:
    """Train in the run's folder, or say that nothing is left to train."""
    folder, trainer = cli.folder, cli.trainer
    checkpoint = checkpoints.resume_path(folder, cli.config.resume, cli.config.overwrite)
    if checkpoint is not None:
        with stage(f"checking {checkpoint}"):
            content = checkpoints.read_checkpoint(checkpoint, cli.model)
        if reason := checkpoints.end_reason(content, trainer):
            if trainer.is_global_zero:
                say(f"{folder}: nothing is left to train: it {reason}")
            return
        if trainer.is_global_zero and CaptionData.__qualname__ not in content:
            say(f"WARNING: {checkpoint}: lacks the order of the photos, which will be another one")
        loggers.resume_board(trainer, content)
        del content  # a second copy of the model
    config_file = folder / CONFIG
    if trainer.is_global_zero:
        if checkpoint is not None and config_file.exists():
            for line in checkpoints.changed_settings(config_file, cli.settings):
                say(line)
        for name in (LAST, BEST):
            remove_unfinished(folder / name)

    def begin(*_: Any) -> None:
        """Replace an earlier run, once data, features and a first validation were right."""
        if not trainer.is_global_zero:
            return
        if checkpoint is None:
            for name in (LAST, BEST):
                (folder / name).unlink(missing_ok=True)  # never resume from it
        with written_whole(config_file) as path:
            path.write_text(yaml.safe_dump(cli.settings, sort_keys=False), encoding="utf-8")
        on_start()

    def finish(*_: Any) -> None:
        """Complete the best checkpoint, before loggers upload it."""
        if trainer.is_global_zero and (folder / BEST).exists():
            checkpoints.store_offset(folder / BEST)

    run_callback = LambdaCallback(on_train_start=begin, on_fit_end=finish)
    trainer.callbacks.insert(0, run_callback)  # type: ignore[attr-defined]
    with loggers.wandb_within(folder):
        trainer.fit(cli.model, cli.datamodule, ckpt_path=checkpoint, weights_only=True)


def features(arguments: list[str]) -> Path | None:
    """Write the features of a training by the options of `train`, unless they exist already.

    Returns their folder; None in all processes but the first.
    """
    with plain_messages("continue by the same command"):
        # Lightning sets the data up in every process, which computes the features.
        cli = TrainCLI([*arguments, "--trainer.fast_dev_run=1"])
        if not cli.config.data.features:
            raise InputError("data.features names no folder; give --data.features DIR")
        with stage("features"):
            cli.trainer.validate(cli.model, datamodule=cli.datamodule, verbose=False)
        return Path(cli.config.data.features) if cli.trainer.is_global_zero else None
