"""The ranges of what a training's configuration holds, and which of its values is out of them."""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from numbers import Real
from typing import Annotated, Any, Literal

from captioning.data.data_module import CaptionData
from captioning.errors import UsageError
from captioning.numbers import (
    Count,
    MachineCount,
    PositiveCount,
    ProcessCount,
    Range,
    Seed,
    hints,
    shown,
    unmet_requirement,
)
from captioning.training.module import CaptioningModule
from captioning.training.pictures import ValidationTable
from captioning.training.validation_grounding import ValidationGrounding
from captioning.training.validation_history import ValidationPage

Epochs = Annotated[int, Range(1, 1_000_000)]
Batches = Count | Annotated[float, Range(0, 1)]
Score = Annotated[float, Range(-1_000_000, 1_000_000)]

OPTIONS: dict[str, Any] = {
    "seed_everything": Seed | bool,
    "save_every": Annotated[float, Range(0, 1_000_000)],
    "compile_after": Annotated[int, Range(-1, 1_000_000_000)],
    "early_stopping.min_delta": Score,
    "early_stopping.patience": Count,
    "early_stopping.stopping_threshold": Score,
    "early_stopping.divergence_threshold": Score,
    "trainer.devices": ProcessCount | Literal[-1],
    "trainer.num_nodes": MachineCount,
    "trainer.fast_dev_run": Count | bool,
    "trainer.max_epochs": Epochs | Literal[-1],
    "trainer.min_epochs": Epochs | Literal[0],
    "trainer.max_steps": PositiveCount | Literal[-1],
    "trainer.min_steps": Count,
    "trainer.limit_train_batches": Batches,
    "trainer.limit_val_batches": Batches,
    "trainer.limit_test_batches": Batches,
    "trainer.limit_predict_batches": Batches,
    "trainer.overfit_batches": Batches,
    "trainer.val_check_interval": PositiveCount | Annotated[float, Range(0, 1, above=True)],
    "trainer.check_val_every_n_epoch": Epochs,
    "trainer.num_sanity_val_steps": Count | Literal[-1],
    "trainer.log_every_n_steps": Count,
    "trainer.accumulate_grad_batches": PositiveCount,
    "trainer.gradient_clip_val": Annotated[float, Range(0, 1_000_000)],
    "trainer.reload_dataloaders_every_n_epochs": Count,
}
"""What has no signature of ours: the options of this command and of Lightning's classes."""

GROUPS: dict[str, type] = {
    "model": CaptioningModule,
    "data": CaptionData,
    "validation_table": ValidationTable,
    "validation_page": ValidationPage,
    "validation_grounding": ValidationGrounding,
}
"""Whose arguments the groups of options are."""

DEVICES = re.compile(r"auto|-?[0-9]{1,4}|[0-9]{1,4}(,[0-9]{1,4})*,?")
"""What Lightning understands as `trainer.devices`: all, how many, or which."""


def check_ranges(config: Mapping[str, Any]) -> None:
    """Look for a number that is out of its range.

    Args:
        config: a training's, as plain dicts and lists; classes are known to be importable.

    Raises:
        UsageError: there is one.
    """
    for key, value, hint in _numbers(config):
        if wanted := unmet_requirement(hint, value):
            raise UsageError(f"{key}: give {wanted}, not {shown(value)}")
    devices = config["trainer"]["devices"]
    if isinstance(devices, str) and not DEVICES.fullmatch(devices):
        raise UsageError(
            f"trainer.devices: give how many, auto, or their numbers such as 0,1, "
            f"not {shown(devices)}"
        )


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """All numbers that have a range or a type to keep to, with their keys."""
    for key, hint in OPTIONS.items():
        group, _, name = key.rpartition(".")
        value = (config[group] if group else config).get(name)
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,4}", value):
            value = int(value)  # as Lightning reads `trainer.devices`
        if isinstance(value, Real):
            yield key, value, hint
    for group, kind in GROUPS.items():
        yield from _arguments(group, kind, config[group])
    yield from _parts("trainer", config["trainer"])


def _arguments(prefix: str, kind: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The numbers among the arguments of a class and of its parts."""
    for name, hint in hints(kind.__init__).items():
        if isinstance(given.get(name), Real):
            yield f"{prefix}.{name}", given[name], hint
    yield from _parts(prefix, given)


def _parts(prefix: str, given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The numbers of the objects that a configuration names by their classes."""
    for name, value in given.items():
        for index, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, Mapping) and isinstance(part.get("class_path"), str):
                place = f"[{index}]" if isinstance(value, list) else ""
                module, _, kind = part["class_path"].rpartition(".")
                arguments = part.get("init_args") or {}
                yield from _arguments(
                    f"{prefix}.{name}{place}.init_args",
                    getattr(import_module(module), kind),
                    arguments,
                )
