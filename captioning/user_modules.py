"""Imports users' modules, with attentions, decoders, maps, readers or metrics of their own."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from captioning.errors import InputError

IMPORT = "--import"
"""The option with a module's name; it may be repeated."""


def import_modules(names: Sequence[str]) -> None:
    """Import the user's modules, from the working folder or installed.

    Raises:
        InputError: a module does not exist or fails.
    """
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.append(here)  # last, so that no file there shadows an installed module
    for name in names:
        try:
            import_module(name.removesuffix(".py"))
        except Exception as error:  # the user's module may raise anything
            raise InputError(f"{IMPORT} {name}: {type(error).__name__}: {error}") from error


def split_imports(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The modules of ``--import``, and the other arguments.

    Raises:
        InputError: ``--import`` is the last argument.
    """
    modules, others = [], []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == IMPORT:
            module = next(waiting, None)
            if module is None:
                raise InputError(f"{IMPORT}: expected the name of a module, such as my_decoder")
            modules.append(module)
        elif argument.startswith(f"{IMPORT}="):
            modules.append(argument.removeprefix(f"{IMPORT}="))
        else:
            others.append(argument)
    return modules, others
