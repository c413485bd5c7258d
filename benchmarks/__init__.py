"""What `scripts/benchmark.py` measures: this package, an earlier one, and two rivals."""
