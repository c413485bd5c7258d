"""The command line: each command parses its options and calls functions of the package.

A command is a module with `add`, which adds its parser, and `run`. Slow imports stay inside `run`,
so that `captioning --help` is instant.
"""

from captioning.cli.program import main

__all__ = ["main"]
