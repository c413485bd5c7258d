"""Lightning's and W&B's remarks that do not fit what we do."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

MESSAGES = (
    # More workers would starve the training on two cores; data.workers is there for others.
    ".*does not have many workers.*",
    # A frozen encoder should be in evaluation mode.
    r".*module\(s\) in eval mode at the start of training.*",
    # `captioning train` hands LightningCLI its own arguments, without the word train.
    "LightningCLI's args parameter is intended to run from within Python.*",
    # The run's folder holds config.yaml before the first checkpoint; an earlier run was refused.
    "Checkpoint directory .* exists and is not empty.*",
    "Experiment logs directory .* exists and is not empty.*",
    # Small data sets have few batches; every epoch is logged all the same.
    "The number of training batches .* is smaller than the logging interval.*",
    # Ours leaves out what the epoch has had (SeededSampler), though it has no state of its own.
    r".*your dataloader is\s+not resumable.*",
    # Lightning's own use of jsonargparse and torch.
    r"\s*(By default only one Jsonargparse|``instantiate_classes`` was deprecated).*",
    r".*isinstance\(treespec, LeafSpec\).*",
    r"torch\.distributed\.nn\.functional\.all_gather is deprecated.*",
)
LOGGERS = ("pytorch_lightning", "lightning_fabric")


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out those remarks, and all that Lightning says without being worried.

    Lightning reports each device that is missing, advertises products, and announces the end of
    the training; `captioning.training.progress` tells what matters.
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in MESSAGES:
            warnings.filterwarnings("ignore", message=message)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
