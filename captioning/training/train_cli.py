"""`captioning train` and `captioning features`: from YAML files to a checkpoint or features."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import (
    Checkpoint,
    LambdaCallback,
    LearningRateMonitor,
    WeightAveraging,
)
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.captioner.checkpoint import read
from captioning.configurable import IMPORT
from captioning.data.data_module import CaptionData
from captioning.data.tokenizers import TokenizerName
from captioning.device import fast_precision
from captioning.errors import InputError
from captioning.files import made_folder, only_writer, remove_unfinished, written_whole
from captioning.kernels import on_by_default
from captioning.progress_bar import say, stage
from captioning.shelf import path_of
from captioning.training import checkpoints, configuration, loggers, validation_images
from captioning.training.callbacks import Progress, StopEarly, is_at_zero
from captioning.training.checkpoints import BEST, CONFIG, LAST
from captioning.training.configuration import plain_messages
from captioning.training.module import CaptioningModule


class TrainCLI(LightningCLI):
    """The parts of a training, built from YAML files and options."""

    @stage("building the model")
    @configuration.restrictions()
    def __init__(self, arguments: list[str]) -> None:
        epilog = (
            f"{IMPORT} MODULE, any number of times, lets the configuration name the classes of "
            "your module, such as another decoder; see docs/configuration.md"
        )
        parser = {"prog": "captioning train", "exit_on_error": False, "allow_abbrev": False}
        super().__init__(
            CaptioningModule,
            CaptionData,
            args=configuration.lightning_arguments(arguments),
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
        parser.add_class_arguments(CaptioningModule, "model", **untyped)
        parser.add_class_arguments(CaptionData, "data", **untyped)
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        starts = ("model.initial", "data.tokenizer", "data.keep_words")
        parser.link_arguments(starts, "data.words", compute_fn=initial_words)
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
        for name, does in (
            ("resume", "continue from last.ckpt in trainer.default_root_dir, or from best.ckpt"),
            ("overwrite", "start again if trainer.default_root_dir contains an earlier run"),
        ):
            parser.add_argument(f"--{name}", action="store_true", help=does)
        kernels: Any = Literal["on", "off"]
        default = "on" if on_by_default() else "off"
        for name, kind, value, does in (
            ("save_every", float, 10.0, "minutes between checkpoints within a long epoch"),
            ("log_model", bool, False, "keep best.ckpt as an artifact in W&B"),
            ("compile_after", int, 100, "steps before arithmetic is compiled in C++; -1: never"),
            ("kernels", kernels, default, "off: only the plain model, slower"),
        ):
            parser.add_argument(f"--{name}", type=kind, default=value, help=does)

    def instantiate_classes(self) -> None:
        """Build all parts, unless the folder is unsuitable.

        The trainer gets our callbacks, and our loggers if the configuration has none.
        """
        config, options = self.config, self.config.trainer
        self.folder = Path(options.default_root_dir or "runs/captioning")
        self.shows_progress = options.enable_progress_bar is not False
        self.is_trial = bool(options.fast_dev_run)  # tries a few batches, writes no files
        if options.precision in ("bf16-true", "16-true"):
            raise InputError(
                f"trainer.precision: {options.precision} rounds away most steps of the weights; "
                "take 32-true or bf16-mixed"
            )
        if not self.is_trial:
            checkpoints.resumed_from(self.folder, config.resume, config.overwrite)
        self.parts = self.parser.instantiate(config)
        self.model, self.datamodule = self.parts.model, self.parts.data
        self.model.kernels, self.model.compile_after = config.kernels == "on", config.compile_after
        chosen = self.parts.trainer
        callbacks = configuration.checked_writers(chosen.callbacks, self.folder)
        logger = configuration.checked_writers(chosen.logger, self.folder)
        if self.shows_progress:
            callbacks.append(Progress())
        if self.is_trial:
            logger = []
        else:
            best = self.parts.checkpoints
            best.dirpath = str(made_folder(self.folder))
            callbacks += [self.parts.early_stopping, self.parts.validation_table]
            callbacks += [self.parts.validation_page, self.parts.validation_grounding]
            # The last one after the best one, whose score it stores.
            callbacks += [loggers.ResumedLogs(), best]
            callbacks.append(checkpoints.LastCheckpoint(config.save_every))
            if chosen.logger is None:
                logged = best if config.log_model else None
                logger = loggers.loggers(self.folder, self.settings(), config.resume, logged)
        if logger:
            callbacks.append(LearningRateMonitor(logging_interval="step"))
        chosen.callbacks, chosen.logger = callbacks, logger or False
        chosen.default_root_dir = str(self.folder)
        chosen.enable_progress_bar = False  # of Lightning's
        if "SLURM_NTASKS" in os.environ and "SLURM_STEP_ID" not in os.environ:
            os.environ["SLURM_JOB_NAME"] = (
                "interactive"  # not a task of srun, so do not count tasks
            )
        trainer: Any = pl.Trainer(**chosen)
        # Averaged weights are swapped out when a validation ends; callbacks that show them come
        # before that, checkpoints after.
        last = (Checkpoint, WeightAveraging)
        trainer.callbacks.sort(key=lambda each: [isinstance(each, kind) for kind in last])
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # no other was chosen
            trainer.strategy.checkpoint_io = checkpoints.WholeCheckpoints(self.folder)
        self.trainer = trainer

    def settings(self) -> dict[str, Any]:
        """The configuration as plain values, without options of this call only."""
        once = self.config.clone()
        once.resume = once.overwrite = False
        # Without its nulls a file would fall back to the defaults, such as downloaded weights.
        settings: dict[str, Any] = yaml.safe_load(self.parser.dump(once, skip_unset=False))
        return settings


def initial_words(
    initial: str | None, tokenizer: TokenizerName = "ptb", keep_words: bool = True
) -> tuple[str, ...]:
    """The words of the model that a training starts from; none of another tokenizer's."""
    config = {} if initial is None else read(path_of(initial))[0]
    same = keep_words and config.get("tokenizer", "ptb") == tokenizer
    return tuple(config.get("vocabulary", ())) if same else ()


def train(arguments: list[str], begins: Callable[[], None] = lambda: None) -> Path | None:
    """Train by LightningCLI's options, such as ``--config configs/shapes.yaml``.

    Args:
        arguments: the options.
        begins: called when all checks have passed and an earlier run in the folder is replaced.

    Returns:
        The best checkpoint, or the last one if no validation has run; None if batches were only
        tried out (``trainer.fast_dev_run``), and in all processes but the first.

    Raises:
        InputError: options, data, a photo or a folder are invalid.
        KeyboardInterrupt: interrupted; the message says how to continue.
    """
    with plain_messages():
        cli = TrainCLI(arguments)
        is_first = cli.trainer.is_global_zero
        try:
            with stage("train", cli.shows_progress):
                if cli.is_trial:
                    cli.trainer.fit(cli.model, cli.datamodule)
                    return None
                with only_writer(cli.folder) if is_first else nullcontext():
                    _fit(cli, begins)
        finally:
            if cli.model.kernels:
                from captioning.kernels.compiled import compile_from_now

                compile_from_now(False)
        if not is_first:
            return None
        best, stopped = cli.parts.checkpoints, cli.parts.early_stopping
        if reason := stopped.stopping_reason_message:
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


def _fit(cli: TrainCLI, begins: Callable[[], None]) -> None:
    """Train in the run's folder, or say that nothing is left to train."""
    folder, trainer, settings = cli.folder, cli.trainer, cli.settings()
    resumed = checkpoints.resumed_from(folder, cli.config.resume, cli.config.overwrite)
    if resumed is not None:
        with stage(f"checking {resumed}"):
            saved = checkpoints.resumable(resumed, cli.model)
        if why := checkpoints.ended(saved, trainer):
            if trainer.is_global_zero:
                say(f"{folder}: nothing is left to train: it {why}")
            return
        loggers.resume_board(trainer, saved)
        del saved  # a second copy of the model
    config, saves = folder / CONFIG, (folder / LAST, folder / BEST)
    if trainer.is_global_zero:
        if resumed is not None and config.exists():
            for line in checkpoints.changed(config, settings):
                say(line)
        for checkpoint in saves:
            remove_unfinished(checkpoint)

    def begin(*_: Any) -> None:
        """Replace an earlier run, once data, features and a first validation were right."""
        if not trainer.is_global_zero:
            return
        for checkpoint in saves if resumed is None else ():
            checkpoint.unlink(missing_ok=True)  # never resume from it
        with written_whole(config) as path:
            path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        begins()

    def finish(*_: Any) -> None:
        """Complete the best checkpoint, before loggers upload it."""
        if trainer.is_global_zero and (folder / BEST).exists():
            checkpoints.keep_offset(folder / BEST)

    started = LambdaCallback(on_train_start=begin, on_fit_end=finish)
    trainer.callbacks.insert(0, started)  # type: ignore[attr-defined]
    with loggers.wandb_within(folder):
        trainer.fit(cli.model, cli.datamodule, ckpt_path=resumed, weights_only=True)


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
