"""`captioning train`: from a YAML file to a trained checkpoint."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wandb
import yaml
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from captioning.errors import InputError
from captioning.files import remove_unfinished, written_whole
from captioning.progress_bar import stage
from captioning.training.configured_training import TrainCLI
from captioning.training.loggers import wandb_within
from captioning.training.quiet import quiet
from captioning.training.resumption import check_resumable


def train(arguments: list[str]) -> Path | None:
    """Train as the options say, telling of the progress on stderr.

    Args:
        arguments: LightningCLI's options, such as ``--config configs/shapes.yaml``.

    Returns:
        The best checkpoint; none where batches were only tried out (``trainer.fast_dev_run``), and
        in all processes but the first.

    Raises:
        InputError: options, data, a photo or a folder are not as they should be.
        KeyboardInterrupt: with a message that says how to go on.
    """
    with quiet(), as_input_errors():
        cli = TrainCLI(arguments)
        with stage("train", cli.tells_progress):
            return _train(cli)


def _train(cli: TrainCLI) -> Path | None:
    if cli.is_trial:
        cli.trainer.fit(cli.model, cli.datamodule)
        return None
    resumed = cli.last if cli.config.resume and cli.last.exists() else None
    if resumed is not None:
        with stage(f"looking through {resumed}"):
            check_resumable(resumed, cli.model)
    if cli.trainer.is_global_zero:
        if resumed is None:
            for old in (cli.last, cli.best):  # of a run to be overwritten: never resume from it
                old.unlink(missing_ok=True)
        for checkpoint in (cli.last, cli.best):
            remove_unfinished(checkpoint)
        with written_whole(cli.folder / "config.yaml") as path:
            path.write_text(yaml.safe_dump(cli.settings(), sort_keys=False), encoding="utf-8")
    with wandb_within(cli.folder):
        _fit(cli, resumed)
    return cli.best if cli.trainer.is_global_zero else None


def _fit(cli: TrainCLI, resumed: Path | None) -> None:
    try:
        cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=resumed, weights_only=True)
    except SystemExit as exit:
        if not isinstance(exit.__context__, KeyboardInterrupt):
            raise
        remedy = "go on by the same command with --resume"
        if not cli.last.exists():
            remedy = "no epoch was finished, so start again"
        raise KeyboardInterrupt(f"interrupted; {remedy}") from None
    best = cli.config_init.checkpoints
    if best.best_model_score is not None and cli.trainer.is_global_zero:
        print(f"best {best.monitor}: {best.best_model_score:.4f}", file=sys.stderr)


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Tell the complaints of Lightning and W&B as bad input."""
    try:
        yield
    except (MisconfigurationException, ValueError) as error:
        if isinstance(error, ValueError) and not _is_lightnings(error):
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"the trainer cannot do this: {reason}") from None
    except wandb.errors.Error as error:
        reason = " ".join(str(error).split())
        raise InputError(f"W&B: {reason}; WANDB_MODE=offline trains without it") from None


def _is_lightnings(error: Exception) -> bool:
    """Whether Lightning raised the error itself, and no code that it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("pytorch_lightning.")
