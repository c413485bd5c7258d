#!/usr/bin/env python
"""Measures this package beside a textbook implementation: `scripts/benchmark.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `benchmarks` is not installed

from benchmarks.program import main

if __name__ == "__main__":
    sys.exit(main())
