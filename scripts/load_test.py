#!/usr/bin/env python
"""Measures `captioning serve` with one client and with many: `scripts/load_test.py --help`.

Each client sends one photo after another, the next as soon as the last is answered.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx

WARM_UP = 20.0
"""Seconds of full load before the measurement."""


class Measured(NamedTuple):
    """What clients got.

    Attributes:
        times: seconds of each captioned request.
        errors: the reasons of all others.
        seconds: of the whole measurement.
    """

    times: list[float]
    errors: list[str]
    seconds: float

    def __str__(self) -> str:
        if not self.times:
            return f"no photo captioned; {len(self.errors)} errors"
        times = sorted(self.times)
        return (
            f"{len(times) / self.seconds:.1f} photos/s, median {statistics.median(times):.3f} s, "
            f"99 % under {times[int(0.99 * len(times))]:.3f} s, {len(self.errors)} errors"
        )


def load(address: str, photos: Sequence[bytes], clients: int, seconds: float) -> Measured:
    """Let several clients send photos for some seconds."""
    times: list[float] = []
    errors: list[str] = []
    numbers = count()  # each request sends the next photo
    began = time.perf_counter()

    def client() -> None:
        with httpx.Client(base_url=address, timeout=60) as session:
            while (sent := time.perf_counter()) < began + seconds:
                photo = photos[next(numbers) % len(photos)]
                try:
                    session.post("/caption", files={"photo": photo}).raise_for_status()
                except httpx.HTTPError as error:
                    errors.append(str(error) or repr(error))
                else:
                    times.append(time.perf_counter() - sent)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Measured(times, errors, time.perf_counter() - began)


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Address and process id of a server on a free port of this machine."""
    command = [sys.executable, "-m", "captioning", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit(process.wait())
        try:
            yield address, process.pid
        finally:
            process.send_signal(signal.SIGINT)


def memory(process: int) -> str:
    """What a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)
    return f"{int(kilobytes) / 1024:.0f} MiB"


def main() -> int:
    """Read the options and measure; the exit code is 1 if a request failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Further options go to `captioning serve`."
    )
    parser.add_argument("--model", required=True, metavar="CHECKPOINT")
    parser.add_argument("--photos", required=True, type=Path, help="a folder of photos")
    parser.add_argument("--clients", type=int, default=32, help="at once (default: 32)")
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: 60)")
    options, others = parser.parse_known_args()
    paths = sorted(path for path in options.photos.iterdir() if path.is_file())[:256]
    photos = [path.read_bytes() for path in paths]
    clients, seconds = options.clients, options.seconds
    with started(["--model", options.model, *others]) as (address, process):
        print(f"memory after the start: {memory(process)}", flush=True)
        load(address, photos, clients, WARM_UP)
        alone = load(address, photos, 1, seconds)
        print(f"1 client: {alone}", flush=True)
        many = load(address, photos, clients, seconds)
        print(f"{clients} clients: {many}")
        print(f"memory in the end: {memory(process)}")
    errors = [*alone.errors, *many.errors]
    for error in sorted(set(errors)):
        print(f"{errors.count(error)} times: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
