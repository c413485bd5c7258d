"""Which classes a configuration may name: it is data, and data must not run what they like.

jsonargparse imports whatever path a configuration names wherever a class or a callable may stand,
and looks at its type afterwards. Here everything is forbidden to it but a list of classes that have
been imported already: parts of models and trainings. So a configuration imports no module and
reaches no function, and which of those classes fits a field is for the field's type to say.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from inspect import isfunction, isroutine, signature
from types import ModuleType
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import Namespace, set_parsing_settings
from pytorch_lightning.accelerators import Accelerator
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins import CheckpointIO, ClusterEnvironment, LayerSync, Precision
from pytorch_lightning.profilers import Profiler
from pytorch_lightning.strategies import Strategy
from torchmetrics import Metric

from captioning.errors import UsageError

PACKAGES = frozenset(
    {
        *("captioning", "torch", "torchvision", "torchmetrics", "timm", "wandb"),
        *("pytorch_lightning", "lightning", "lightning_fabric"),
    }
)
"""Where classes that a configuration may name come from, beside the modules of ``--import``."""

KINDS: tuple[type, ...] = (
    *(pl.Callback, Logger, Profiler, Strategy, Accelerator),
    *(Precision, CheckpointIO, ClusterEnvironment, LayerSync),
    *(torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, Metric),
)
"""What classes of other packages than ours have to be."""

EXCLUDED: tuple[type, ...] = (LambdaCallback, torch.jit.ScriptModule)
"""Which are nothing but means to call functions."""


def permit(modules: Sequence[str]) -> frozenset[str]:
    """Let jsonargparse import classes that may be named, and nothing else, from now on.

    This is a setting of the process: other parsers made with jsonargparse have it, too.

    Args:
        modules: the user's, which have been imported.

    Returns:
        The paths of the classes.
    """
    paths = frozenset(path for kind in _classes(modules) for path in _paths(kind))
    set_parsing_settings(
        config_read_mode_fsspec_enabled=False,  # a configuration is a file, never an address
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,  # nothing is built where the type says nothing
        import_path_denylist=["*"],
        import_path_allowlist=sorted(paths),
    )
    return paths


def check_parsed(value: Any, permitted: Collection[str], key: str = "") -> None:
    """Nothing, where a parsed configuration names permitted classes and holds nothing worse.

    What is permitted to jsonargparse includes the methods of a class, such as one that loads
    pickles; they would be called once the configuration is made into objects.

    Args:
        value: the configuration, or a part of it.
        permitted: the paths of classes.
        key: of the part.

    Raises:
        UsageError: a class path is of anything else, or a value is a function or W&B's settings.
    """
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        path = value.get("class_path")
        if path is not None and path not in permitted:
            raise UsageError(f"{key}: {path!r} is no class that a configuration may name")
        if str(path).endswith(".WandbLogger") and (value.get("init_args") or {}).get("settings"):
            # Among them is the address that W&B's key is sent to.
            raise UsageError(f"{key}: settings of W&B come from its environment variables only")
        for name, part in value.items():
            check_parsed(part, permitted, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple | set):
        for part in value:
            check_parsed(part, permitted, key)
    elif isroutine(value) or isinstance(value, partial):
        raise UsageError(f"{key}: a function, which a configuration may not name; give a class")


def arguments_of_classes(permitted: Iterable[str]) -> set[str]:
    """The names of all arguments of our own classes and the user's, for suggestions.

    Args:
        permitted: the paths of classes.
    """
    names: set[str] = set()
    for path in permitted:
        module, _, name = path.rpartition(".")
        if path.partition(".")[0] not in PACKAGES - {"captioning"}:
            made = vars(getattr(sys.modules[module], name)).get("__init__")
            if isfunction(made):
                names |= signature(made).parameters.keys() - {"self", "args", "kwargs"}
    return names


def _classes(modules: Sequence[str]) -> Iterator[type]:
    """The classes that may be named: ours, the user's, and subclasses of `KINDS`."""
    for name, module in list(sys.modules.items()):
        if _within(name, ("captioning", *modules)) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield value
    for kind in _subclasses(KINDS):
        if _within(kind.__module__, PACKAGES) and not issubclass(kind, EXCLUDED):
            yield kind


def _subclasses(kinds: Iterable[type]) -> set[type]:
    found: set[type] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += type.__subclasses__(kind)
    return found


def _within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _paths(kind: type) -> Iterator[str]:
    """Where a class is defined, and where a package around that offers it."""
    name = kind.__name__
    if not name.isidentifier() or kind.__qualname__ != name:
        return
    yield f"{kind.__module__}.{name}"
    parts = kind.__module__.split(".")
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if package in sys.modules and vars(sys.modules[package]).get(name) is kind:
            yield f"{package}.{name}"
