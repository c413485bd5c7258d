"""A process that runs one implementation of a task whenever it is asked to."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.tasks import WITHOUT_SIZE, Job, task

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def serve(job: Job) -> None:
    """Answer each line of stdin by the seconds of a run; before, tell the first run's peak memory.

    A run before each that is timed fills the caches again, which another process has used.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    torch.set_num_threads(job.threads)
    if job.task not in WITHOUT_SIZE:
        task(replace(job, size="tiny"))()  # what libraries take for themselves once
    run = task(job)
    print(json.dumps(peak(run, job.device)), file=answers, flush=True)
    for _ in sys.stdin:
        run()
        _finish(job.device)
        began = perf_counter()
        run()
        _finish(job.device)
        print(json.dumps(perf_counter() - began), file=answers, flush=True)


def peak(run: Callable[[], object], device: str) -> float | None:
    """Megabytes that a run takes beyond what the process has; None where that is unknown."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    if not CLEAR.exists():
        run()
        return None
    CLEAR.write_text("5")  # resets the peak; getrusage's is inherited from the parent
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1e6


def _status(field: str) -> int:
    """A size in bytes that Linux keeps for this process."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
