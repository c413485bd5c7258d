#!/usr/bin/env python
"""Measures `captioning serve` under one client and under many: `scripts/load_test.py --help`.

Clients send one photo after another, each as soon as the answer to the last one is there.
"""

import argparse
import http.client
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
from urllib.parse import urlsplit

WARM_UP = 20.0
"""Seconds of the full load before anything is measured."""

BOUNDARY = "a-line-that-no-photo-holds"


class Answered(NamedTuple):
    """What clients got.

    Attributes:
        times: seconds of each request that was captioned.
        errors: what went wrong with the others.
        seconds: of the whole.
    """

    times: list[float]
    errors: list[str]
    seconds: float

    def line(self) -> str:
        """The numbers that matter."""
        if not self.times:
            return f"no photo captioned; {len(self.errors)} errors"
        times = sorted(self.times)
        return (
            f"{len(times) / self.seconds:7.1f} photos/s, median {statistics.median(times):.3f} s, "
            f"99 % under {times[int(0.99 * len(times))]:.3f} s, {len(self.errors)} errors"
        )


def form(photo: Path) -> bytes:
    """The body of a request with a photo."""
    head = (
        f"--{BOUNDARY}\r\n"
        f'Content-Disposition: form-data; name="photo"; filename="photo{photo.suffix}"\r\n\r\n'
    )
    return head.encode() + photo.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()


def load(address: str, forms: Sequence[bytes], clients: int, seconds: float) -> Answered:
    """Let so many clients send photos for so long."""
    host = urlsplit(address).netloc
    times: list[float] = []
    errors: list[str] = []
    numbers = count()  # each request sends the next photo
    began = time.perf_counter()

    def client() -> None:
        connection = http.client.HTTPConnection(host, timeout=60)
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        while (sent := time.perf_counter()) < began + seconds:
            try:
                connection.request("POST", "/caption", forms[next(numbers) % len(forms)], headers)
                answer = connection.getresponse()
                told = answer.read()
            except (OSError, http.client.HTTPException) as error:
                errors.append(repr(error))
                connection.close()
                continue
            if answer.status == 200:
                times.append(time.perf_counter() - sent)
            else:
                errors.append(told.decode())

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Answered(times, errors, time.perf_counter() - began)


class Server(NamedTuple):
    """A server to be measured; without a process id where another machine may run it."""

    address: str
    process: int | None

    def memory(self) -> str:
        """What the server has in memory."""
        if self.process is None:
            return "unknown"
        status = Path(f"/proc/{self.process}/status").read_text()
        kilobytes = next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)
        return f"{int(kilobytes) / 1024:.0f} MiB"


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[Server]:
    """A server on a free port of this machine."""
    command = [sys.executable, "-m", "captioning", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit(process.wait())
        try:
            yield Server(address, process.pid)
        finally:
            process.send_signal(signal.SIGINT)


def measure(server: Server, forms: Sequence[bytes], clients: int, seconds: float) -> bool:
    """Print what there is to know; whether no request failed."""
    print(f"after the start:        {server.memory()}", flush=True)
    load(server.address, forms, clients, WARM_UP)
    print(f"after the warm-up:      {server.memory()}", flush=True)
    alone = load(server.address, forms, 1, seconds)
    print(f"1 client for {seconds:g} s:      {alone.line()}", flush=True)
    many = load(server.address, forms, clients, seconds)
    print(f"{clients} clients for {seconds:g} s:    {many.line()}")
    print(f"in the end:             {server.memory()}")
    if alone.times and many.times:
        ratio = (len(many.times) / many.seconds) / (len(alone.times) / alone.seconds)
        print(f"{clients} clients over 1:      {ratio:.2f} times the photos per second")
    errors = [*alone.errors, *many.errors]
    for error in sorted(set(errors)):
        print(f"{errors.count(error)} times: {error}", file=sys.stderr)
    return not errors


def main() -> int:
    """Read the options and measure; 1 where a request failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Further options go to `captioning serve`."
    )
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--model", metavar="CHECKPOINT", help="start a server of this model")
    server.add_argument("--url", help="of a server that is running")
    parser.add_argument("--photos", required=True, type=Path, help="a folder of photos")
    parser.add_argument("--clients", type=int, default=32, help="at once (default: 32)")
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: 60)")
    options, others = parser.parse_known_args()
    photos = sorted(path for path in options.photos.iterdir() if path.is_file())[:256]
    forms = [form(photo) for photo in photos]
    if options.url:
        server = Server(options.url, None)
        return 0 if measure(server, forms, options.clients, options.seconds) else 1
    with started(["--model", options.model, *others]) as server:
        return 0 if measure(server, forms, options.clients, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
