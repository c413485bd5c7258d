import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from captioning.commands import main


class Process(NamedTuple):
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(
    checkpoint: Path, errors: Path, files: int | None = None, end: int = signal.SIGINT
) -> Iterator[Process]:
    """A process that serves a model.

    Args:
        checkpoint: of the model.
        errors: where its stderr goes.
        files: how many it may open at a time; the system's limit if None.
        end: the signal that ends it.
    """
    command = ["captioning", "serve", "--model", str(checkpoint), "--port", "0", "--device", "cpu"]
    limited = [sys.executable, "-m", *command]
    if files is not None:
        limited = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *limited]
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield Process(process.stdout.readline().strip(), process)
        finally:
            process.send_signal(end)
            assert process.wait() == 0


@pytest.mark.integration
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_and_ends_by_a_signal(
    photo: bytes, tmp_path: Path, end: int
) -> None:
    with serving("shapes", tmp_path / "stderr", end=end) as server:
        assert server.address.startswith("http://127.0.0.1:")
        files = {"photo": photo}
        chosen = {"view": "true", "map": "grad-cam"}
        answer = httpx.post(f"{server.address}/caption", files=files, data=chosen, timeout=30)
        idle = socket.create_connection((httpx.URL(server.address).host, _port(server)), 20)
    idle.close()
    assert answer.json()["captions"][0]["words"]
    assert answer.json()["view"]["captions"][0]["maps"][0]["map"] == "grad-cam"
    assert (tmp_path / "stderr").read_bytes() == b""


def _port(server: Process) -> int:
    return httpx.URL(server.address).port or 80


def test_a_taken_port_is_reported_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "none.ckpt", "--port", str(port)]) == 1
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"captioning: cannot listen on 127.0.0.1, port {port} (")
