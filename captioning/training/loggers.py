"""Where scores are written: a CSV file, and W&B."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from captioning.errors import InputError

MODES = ("online", "offline", "disabled")
DATA = "WANDB_DATA_DIR"


def loggers(folder: Path, config: dict[str, Any], resume: bool) -> list[Logger]:
    """CSV, and W&B: online for those who have logged in, offline for others.

    The environment variable WANDB_MODE (online, offline, disabled) has the last word.

    Args:
        folder: the run's folder.
        config: what W&B shows as the run's configuration.
        resume: keep the CSV of the training so far, and begin a further one, csv-2/metrics.csv.

    Raises:
        InputError: W&B shall be online, but nobody has logged in.
    """
    earlier = len(list(folder.glob("csv*"))) if resume else 0
    csv = CSVLogger(folder, name="", version=f"csv-{earlier + 1}" if earlier else "csv")
    mode = wandb_mode()
    if mode == "disabled":
        return [csv]
    settings = wandb.Settings(silent=mode == "offline")
    board = WandbLogger(
        project="captioning",
        name=folder.name,
        save_dir=folder,
        mode=mode,  # Lightning's own `offline` comes too late where W&B has been asked for a login
        config=config,
        settings=settings,
    )
    return [csv, board]


def wandb_mode() -> str:
    """Online, offline or disabled, without ever asking anybody anything.

    Raises:
        InputError: WANDB_MODE is something else, or online where nobody has logged in.
    """
    wanted = os.environ.get("WANDB_MODE")
    if wanted not in (None, *MODES):
        raise InputError(f"WANDB_MODE is {wanted!r}; give online, offline or disabled, or unset it")
    if wanted == "disabled":
        return wanted
    # Lightning's own call of W&B makes it warn of a setting that nobody has set.
    wandb.setup(wandb.Settings(show_warnings=False))
    if wanted == "offline":
        return wanted
    if wandb.login(prompt=False, verify=False):
        return "online"
    if wanted == "online":
        raise InputError(
            "WANDB_MODE is online, but nobody has logged in; run `wandb login`, "
            "or unset WANDB_MODE to keep the run on this disk"
        )
    return "offline"


@contextmanager
def wandb_within(folder: Path) -> Iterator[None]:
    """Keep the pictures of W&B's run in the run's folder, and end W&B's run with the block.

    Those of an offline run would otherwise pile up under the home folder, out of sight.
    """
    given = os.environ.get(DATA)
    os.environ[DATA] = given or str((folder / "wandb" / "data").absolute())
    try:
        yield
    finally:
        run = wandb.run
        if run is not None:
            run.finish()
            if run.offline:
                command = f"wandb sync {Path(run.dir).parent}"
                print(f"W&B kept this run offline; to upload it: {command}", file=sys.stderr)
        if given is None:
            del os.environ[DATA]
