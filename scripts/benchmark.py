#!/usr/bin/env python
"""Times this package against rivals and other checkouts: `scripts/benchmark.py --help`."""

import importlib
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if sys.argv[1:2] == ["--worker"]:  # of whichever checkout, by the benchmarks of this one
    sys.path.insert(0, sys.argv[2])
    importlib.import_module("captioning")
sys.path.insert(0, ROOT)  # `benchmarks` is not installed

from benchmarks.program import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
