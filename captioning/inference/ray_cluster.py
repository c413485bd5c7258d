"""Bulk captioning on a Ray cluster, whose machines may die, except for the caller's."""

import json
import logging
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from captioning.captioner.captioner import Captioner
from captioning.data.photo_files import photo_size
from captioning.errors import InputError
from captioning.inference.json_lines import captioned_lines
from captioning.search.search import Search

MAX_BLOCKS = 10_000
"""The most units of work of Ray Data; with more shards, a unit has several."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for the answer of a cluster."""


def lines_by_ray(
    address: str,
    device: str | None,
    captioner: Captioner,
    search: Search,
    parts: Iterable[tuple[int, Sequence[Path]]],
    batch_size: int,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each shard as the cluster finishes it, in any order.

    Only this process keeps lines. The shard of a machine that dies is captioned again on another.

    Args:
        address: as for `caption_into_shards`, like `device`.
        device: cuda or cpu; the GPUs by default if the cluster has some.
        captioner: the model, on the CPU.
        search: how words are chosen.
        parts: the number and the photos of each shard.
        batch_size: photos per batch.

    Raises:
        InputError: no cluster answers or it stops, it lacks the device, the model fails, or a
            machine lacks the photos.
    """
    ray = _connected(address)
    from ray.data import ActorPoolStrategy, DataContext, from_items

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    DataContext.get_current().enable_progress_bars = False
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:  # Ray prints the logs of machines that die, also where it ends
            machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            gpus = sum(int(machine.get("GPU", 0)) for machine in machines)
            cores = sum(int(machine.get("CPU", 0)) for machine in machines)
            if device == "cuda" and not gpus:
                raise InputError("--device cuda: the Ray cluster has no GPUs; leave it out")
            on_gpu = gpus > 0 and device != "cpu"
            job = captioner, search, batch_size, str(Path.cwd()), on_gpu
            shards = [
                {"number": number, "photos": json.dumps([str(photo) for photo in photos])}
                for number, photos in parts
            ]
            blocks = min(len(shards), MAX_BLOCKS)
            # By default Ray Data starts dead workers again, and their work, without limit.
            rows = from_items(shards, override_num_blocks=blocks).map_batches(
                Worker,
                batch_size=1,
                fn_constructor_args=(ray.put(job),),
                compute=ActorPoolStrategy(min_size=1, initial_size=gpus if on_gpu else cores),
                num_cpus=1,
                num_gpus=int(on_gpu),
            )
            for row in rows.iter_rows():
                if row["failure"]:
                    raise InputError(row["failure"])
                lines = json.loads(row["lines"])
                check_seen(lines, row["blind"])
                yield int(row["number"]), lines
        except ray.exceptions.RayError as error:
            reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
            raise InputError(
                f"the Ray cluster {address} failed: {reason}; go on by the same command"
            ) from error
        finally:
            ray.shutdown()


class Worker:
    """Captions shards on a device of one machine."""

    def __init__(self, job: Any) -> None:
        import ray

        self.captioner, self.search, self.batch_size, self.folder, on_gpu = ray.get(job)
        if on_gpu:
            self.captioner.to("cuda")
        else:  # threads wait for each other on busy cores; and digits depend on their number
            torch.set_num_threads(1)

    def __call__(self, shard: dict[str, Any]) -> dict[str, list[Any]]:
        """Caption the photos of a shard; a batch of Ray Data has one shard."""
        photos = [Path(photo) for photo in json.loads(shard["photos"][0])]
        lines: list[str] = []
        failure, blind = "", ""
        try:
            if not all(photo.is_absolute() for photo in photos):
                os.chdir(self.folder)  # where the process that found the photos runs
            lines += captioned_lines(self.captioner, self.search, photos, self.batch_size)
            if all(photo_size(photo) is None for photo in photos):
                blind = socket.gethostname()
        except (InputError, OSError) as error:
            failure = f"machine {socket.gethostname()}: {error}"
        return {
            "number": list(shard["number"]),
            "lines": [json.dumps(lines)],
            "failure": [failure],
            "blind": [blind],
        }


def check_seen(lines: Sequence[str], blind: str) -> None:
    """Raise InputError if the machine `blind` lacks all photos of these lines, which are here."""
    photos = [Path(json.loads(line)["image"]) for line in lines] if blind else []
    if any(photo_size(photo) is not None for photo in photos):
        raise InputError(
            f"machine {blind} sees no {photos[0]}; every machine needs the photos at the same paths"
        )


def _connected(address: str) -> Any:
    """Connect to a cluster and return the module `ray`.

    Raises:
        InputError: the cluster cannot be reached.
    """
    import ray

    host, _, port = address.rpartition(":")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        if address not in ("auto", "local"):
            # Ray itself waits for minutes.
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
        stderr = os.dup(2)  # C++ code and its threads print; an error that matters is raised
        try:
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            ray.init(address, log_to_driver=False, configure_logging=False)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise InputError(
            f"--ray {address}: no Ray cluster answers ({str(error).splitlines()[0]}); start one by "
            "ray start --head on this machine and give auto, or give local"
        ) from None
    for number, handler in handlers.items():  # Ray takes SIGTERM
        signal.signal(number, handler)
    return ray
