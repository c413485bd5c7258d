"""What `scripts/benchmark.py` measures, and the textbook implementation that it compares with."""
