"""The command line: each command parses its options and calls functions of the package.

A command is a module with `add`, which tells the parser its options, and `run`. Imports of anything
slow stand inside `run`, so that `captioning --help` is instant.
"""

from captioning.cli.program import main

__all__ = ["main"]
