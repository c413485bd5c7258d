"""Imports users' modules, with attentions, decoders, maps, readers or metrics of their own."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from captioning.errors import UsageError

IMPORT = "--import"
"""The option with a module's name; it may be repeated."""


def import_modules(names: Sequence[str]) -> None:
    """Import the user's modules, from the working folder or installed.

    Args:
        names: dotted names.

    Raises:
        UsageError: a module does not exist or fails.
    """
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.append(here)  # last, so that no file there shadows an installed module
    for name in names:
        if name.endswith(".py"):
            raise UsageError(f"{IMPORT} {name}: give the module's name, {name.removesuffix('.py')}")
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"{IMPORT} {name}: not the name of a module, such as my_decoder")
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{IMPORT} {name}: {error}; give a module of this folder or an installed one"
            ) from None
        except Exception as error:  # the user's module may raise anything
            reason = " ".join(str(error).split())
            raise UsageError(f"{IMPORT} {name}: {type(error).__name__}: {reason}") from error


def split_imports(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The modules of ``--import``, and the other arguments.

    Raises:
        UsageError: ``--import`` is the last argument.
    """
    modules, others = [], []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == IMPORT:
            module = next(waiting, None)
            if module is None:
                raise UsageError(f"{IMPORT}: expected the name of a module, such as my_decoder")
            modules.append(module)
        elif argument.startswith(f"{IMPORT}="):
            modules.append(argument.removeprefix(f"{IMPORT}="))
        else:
            others.append(argument)
    return modules, others
