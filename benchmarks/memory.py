"""How much memory a training step takes at its peak, in a process of its own.

Counted is what the first step takes beyond model, annotation vectors and captions: activations,
gradients and the optimizer's moments.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.measure import Contender
from benchmarks.rows import Row, blank_rows, cost_rows
from benchmarks.setting import Setting
from benchmarks.sizes import Size
from benchmarks.training import step
from captioning.errors import UsageError

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def memory_rows(setting: Setting) -> Iterator[Row]:
    """Megabytes (of a million bytes) at every size.

    Raises:
        UsageError: this system does not tell a process's peak.
    """
    if setting.device.type != "cuda" and not CLEAR.exists():
        raise UsageError("the memory row needs Linux or a GPU; leave memory out of --rows")
    for size in setting.sizes:
        peaks = {
            contender: [peak_of_a_process(size, contender, setting.device) / 1e6]
            for contender in setting.contenders
        }
        name = "peak memory of a training step"
        yield from cost_rows(name, str(size), "MB", peaks)
        yield from blank_rows(name, str(size), "MB", setting.blank)


def peak_of_a_process(size: Size, contender: Contender, device: torch.device) -> int:
    """The bytes that a training step takes in a fresh process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as fresh:
        return fresh.submit(_peak, size, contender, device, torch.get_num_threads()).result()


def _peak(size: Size, contender: Contender, device: torch.device, threads: int) -> int:
    torch.set_num_threads(threads)
    # What the libraries take for themselves once, to compile for instance.
    step(replace(size, annotation_dim=16, hidden_dim=16), contender, device)()
    take_step = step(size, contender, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        take_step()
        return torch.cuda.max_memory_allocated(device) - before
    # Not getrusage, whose peak a process inherits from the one that started it.
    CLEAR.write_text("5")
    before = _status("VmRSS")
    take_step()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    """A size in bytes that Linux tells of this process."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise UsageError(f"{STATUS} has no {field}; leave memory out of --rows")
