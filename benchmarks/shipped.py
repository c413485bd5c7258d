"""The model of photos that comes with the package, from files to captions, as commands run it."""

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import torch

from benchmarks.ours import keep_freed_memory
from captioning.captioner import load

CLIENTS = 32
"""How many wait for the server at a time."""


def photos(captioner: Any, paths: Sequence[Path]) -> object:
    """The captions of all photos, in batches, as `captioning caption` prints them."""
    if hasattr(captioner, "stream"):
        return list(captioner.stream(paths))
    from captioning.inference import batches  # type: ignore[attr-defined]  # before 0.4

    return list(batches.candidates(captioner, paths, progress=False, most=1))


def latency(captioner: Any, paths: Sequence[Path]) -> object:
    """The captions of photos that come one after another."""
    return [captioner(path) for path in paths]


def features(captioner: Any, paths: Sequence[Path]) -> object:
    """The annotation vectors of all photos."""

    @torch.no_grad()
    def encoded(batch: Any) -> torch.Tensor:
        network = captioner if hasattr(captioner, "encode") else captioner.network  # before 0.5
        return network.encode(torch.stack([each.view.pixels for each in batch]))

    if hasattr(captioner, "batches"):
        return list(captioner.batches(paths, encoded))
    from captioning.inference import batches  # type: ignore[attr-defined]  # before 0.4
    from captioning.threads import in_threads

    parts = [paths[first : first + 16] for first in range(0, len(paths), 16)]
    read = batches.read_ahead(captioner, enumerate(parts))
    views = ([SimpleNamespace(view=view) for view in part[2]] for part in read)
    return list(in_threads(encoded, views, captioner.device))


def server(job: Any) -> Callable[[Sequence[Path]], object]:
    """The captions of all photos by a server, which `CLIENTS` ask at a time."""
    command = [sys.executable, "-m", "captioning", "serve", "--model", "photos", "--port", "0"]
    if job.precision == "bf16":
        command.append("--bf16")
    environment = os.environ | {"PYTHONPATH": job.checkout, "OMP_NUM_THREADS": str(job.threads)}
    # `python -m` imports from the current folder first.
    process = subprocess.Popen(
        command, env=environment, cwd=job.checkout, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.terminate)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    client = httpx.Client(timeout=600, limits=httpx.Limits(max_connections=CLIENTS))

    def answer(path: Path) -> object:
        found = client.post(f"{address}/caption", files={"photo": path.read_bytes()})
        return found.raise_for_status().json()

    def answers(paths: Sequence[Path]) -> object:
        with ThreadPoolExecutor(CLIENTS) as clients:
            return list(clients.map(answer, paths))

    return answers


def prepared(job: Any) -> Callable[[Sequence[Path]], object]:
    """What a task does with photos."""
    if job.task == "server":
        return server(job)
    keep_freed_memory()  # as commands do
    captioner = load("photos", job.device, bfloat16=job.precision == "bf16")
    kinds: dict[str, Callable[[Any, Sequence[Path]], object]] = {
        "photos": photos,
        "latency": latency,
        "features": features,
    }
    return lambda paths: kinds[job.task](captioner, paths)
