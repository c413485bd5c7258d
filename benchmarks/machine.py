"""What this machine is, and what it can do: products of matrices and copies of memory."""

import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import fastest

SIDE = 2048
"""Rows and columns of the matrices that are multiplied."""

COPIED = 2**28
"""Bytes of the tensor that is copied, far more than caches hold."""

ROUNDS = 9

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

PROBED_SIDE = 256
"""Rows and columns of the product that tells whether a precision is worth measuring."""

SLOWEST = 1 / 16
"""Share of single precision's rate below which a precision is left blank.

Processors without instructions for bfloat16 multiply it number by number, at a hundredth of the
rate, and the rows of a benchmark in it would take hours.
"""


@dataclass(frozen=True)
class Machine:
    """The machine and its measured rates.

    Attributes:
        processor: name of the CPU or GPU that computes.
        threads: that PyTorch computes with on the CPU.
        torch: version of PyTorch.
        python: version of Python.
        date: of the measurement, UTC.
        products: operations per second of a product of square matrices, by precision and by the
            function that multiplies; a multiplication and an addition are two operations. Empty
            for a precision that this machine emulates.
        copy: bytes per second that a large copy reads and writes together.
        instructions: the widest that PyTorch's own code uses on the CPU, such as AVX2.
    """

    processor: str
    threads: int
    torch: str
    python: str
    date: str
    products: dict[str, dict[str, float]]
    copy: float
    instructions: str = ""

    def product(self, precision: str) -> float:
        """Operations per second of the best product in this precision, which `has` it."""
        return max(self.products[precision].values())

    def has(self, precision: str) -> bool:
        """Whether the machine computes in this precision at a useful rate."""
        return bool(self.products[precision])


def measured_machine(device: torch.device, side: int = SIDE, copied: int = COPIED) -> Machine:
    """This machine.

    Args:
        device: where everything will be measured.
        side: of the square matrices.
        copied: bytes of the tensor that is copied.
    """
    return Machine(
        processor=_processor(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        python=platform.python_version(),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        products={name: _products(device, dtype, side) for name, dtype in PRECISIONS.items()},
        copy=_copy(device, copied),
        instructions=torch.backends.cpu.get_cpu_capability(),
    )


def _products(device: torch.device, dtype: torch.dtype, side: int) -> dict[str, float]:
    """Operations per second of every function that multiplies matrices on this device."""
    if not _is_useful(device, dtype):
        return {}
    first, second = _matrices(device, dtype, side)
    ways: dict[str, Callable[[], Any]] = {"torch.mm": lambda: torch.mm(first, second)}
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        # Eager PyTorch gives single precision to MKL, which on some processors is far slower.
        ways["oneDNN linear"] = lambda: torch.ops.mkldnn._linear_pointwise(
            first, second, None, "none", [], ""
        )
    rates = {}
    with torch.inference_mode():
        for name, way in ways.items():
            with suppress(RuntimeError, AttributeError):  # not on this processor, or not in torch
                rates[name] = 2 * side**3 / fastest(way, ROUNDS, device)
    return rates


def _is_useful(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a product in this precision is not far slower than one in single precision."""
    seconds = []
    for precision in (torch.float32, dtype):
        first, second = _matrices(device, precision, PROBED_SIDE)
        seconds.append(fastest(partial(torch.mm, first, second), ROUNDS, device))
    return seconds[0] >= SLOWEST * seconds[1]


def _matrices(device: torch.device, dtype: torch.dtype, side: int) -> tuple[Tensor, Tensor]:
    first, second = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return first, second


def _copy(device: torch.device, copied: int) -> float:
    source = torch.zeros(copied, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * copied / fastest(lambda: target.copy_(source), ROUNDS, device)


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
