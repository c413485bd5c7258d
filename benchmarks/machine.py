"""What this machine is, and what it can do: products of matrices and copies of memory."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import fastest

SIDE = 2048
"""Rows and columns of the matrices that are multiplied."""

COPIED = 2**28
"""Bytes of the tensor that is copied, far more than caches hold."""

ROUNDS = 9

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


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
            function that multiplies; a multiplication and an addition are two operations.
        copy: bytes per second that a large copy reads and writes together.
    """

    processor: str
    threads: int
    torch: str
    python: str
    date: str
    products: dict[str, dict[str, float]]
    copy: float

    def product(self, precision: str) -> float:
        """Operations per second of the best product in this precision."""
        return max(self.products[precision].values())


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
    )


def _products(device: torch.device, dtype: torch.dtype, side: int) -> dict[str, float]:
    """Operations per second of every function that multiplies matrices on this device."""
    first, second = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    ways: dict[str, Callable[[], Any]] = {"torch.mm": lambda: torch.mm(first, second)}
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        # Eager PyTorch gives single precision to MKL, which on some processors is far slower.
        linear = torch.ops.mkldnn._linear_pointwise
        ways["oneDNN linear"] = lambda: linear(first, second, None, "none", [], "")
    with torch.inference_mode():
        return {name: 2 * side**3 / fastest(way, ROUNDS, device) for name, way in ways.items()}


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
