"""A grounding report in W&B."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import wandb

from captioning.evaluation.grounding import GroundingReport
from captioning.training.loggers import wandb_mode, wandb_within


def log_grounding(
    report: GroundingReport, pictures: Sequence[Path], folder: Path, config: dict[str, Any]
) -> None:
    """Log a report as a run of its own: scores, a table with a row per word, and the pictures.

    Nothing is logged where WANDB_MODE is disabled.

    Args:
        report: the report.
        pictures: PNG files.
        folder: where the run is kept on this disk, and what it is named after.
        config: what W&B shows as the run's configuration.

    Raises:
        InputError: W&B shall be online, but nobody has logged in.
    """
    mode = wandb_mode()
    if mode == "disabled":
        return
    with wandb_within(folder):
        run = wandb.init(
            project="captioning",
            name=folder.absolute().name,
            job_type="grounding",
            dir=folder,
            mode=cast("Literal['online', 'offline']", mode),
            config=config,
            settings=wandb.Settings(silent=mode == "offline"),
        )
        names = list(report.all.scores)
        rows = [
            [group.name, group.looks, *(group.value(name) for name in names)]
            for group in (report.all, *report.words)
        ]
        run.log(
            {f"grounding/{name}": value for name, value in report.summary.items()}
            | {"grounding/words": wandb.Table(["word", "mentions", *names], rows)}
            | {f"grounding/{path.stem}": wandb.Image(str(path)) for path in pictures}
        )
