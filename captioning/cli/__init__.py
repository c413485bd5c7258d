"""The command line: each command parses its options and calls functions of the package.

A command is a module with `add_options` and `run`, and a line in `captioning.cli.program`. Slow
imports stay inside `run`, so that help is instant.
"""

from captioning.cli.program import main

__all__ = ["main"]
