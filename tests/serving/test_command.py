import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from captioning.cli import main
from captioning.data.records import Record


class Server(NamedTuple):
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(checkpoint: Path, errors: Path, files: int | None = None) -> Iterator[Server]:
    """A process that serves a model, ended by an interrupt.

    Args:
        checkpoint: of the model.
        errors: where its stderr goes.
        files: how many it may open at a time, unless the system says.
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
            yield Server(process.stdout.readline().strip(), process)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0


def test_serve_prints_its_address_captions_photos_and_ends_by_an_interrupt(
    checkpoint: Path, shapes_records: list[Record], tmp_path: Path
) -> None:
    with serving(checkpoint, tmp_path / "stderr") as server:
        assert server.address.startswith("http://127.0.0.1:")
        files = {"photo": shapes_records[0].image.read_bytes()}
        chosen = {"view": "true", "map": "fine-grad-cam"}  # through the folded encoder
        answer = httpx.post(f"{server.address}/caption", files=files, data=chosen, timeout=30)
    assert answer.json()["captions"][0]["words"]
    assert answer.json()["view"]["captions"][0]["map"] == "fine-grad-cam"
    assert (tmp_path / "stderr").read_bytes() == b""


def test_idle_clients_beyond_the_limit_on_files_neither_block_nor_busy_the_server(
    checkpoint: Path, tmp_path: Path
) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("another process's times are known on Linux only")
    with serving(checkpoint, tmp_path / "stderr", files=256) as server, ExitStack() as stack:
        url = httpx.URL(server.address)
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
        for _ in range(400):
            stack.enter_context(closing(socket.create_connection((url.host, url.port), timeout=20)))
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
        before = cpu_seconds(server.process.pid)
        time.sleep(3)
        assert cpu_seconds(server.process.pid) - before < 1.5
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
    assert (tmp_path / "stderr").stat().st_size < 2000


def test_connections_that_the_system_refuses_are_one_line(checkpoint: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("limits of another process can be set on Linux only")
    with serving(checkpoint, tmp_path / "stderr") as server, ExitStack() as stack:
        url = httpx.URL(server.address)
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files + 5, before[1]))
        for _ in range(50):
            stack.enter_context(closing(socket.create_connection((url.host, url.port), timeout=20)))
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
    errors = (tmp_path / "stderr").read_text()
    assert errors == "captioning: cannot accept a connection: Too many open files\n"


def cpu_seconds(process: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_port_that_is_taken_is_reported_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "none.ckpt", "--port", str(port)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"captioning: cannot listen on 127.0.0.1, port {port} (")


def test_an_unknown_host_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", "none.ckpt", "--host", "no.such.host.invalid"]) == 2
    assert capsys.readouterr().err.startswith("captioning: cannot listen on no.such.host.invalid")


def test_an_invalid_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", "none.ckpt", "--port", "70000"]) == 2
    assert "--port: give a whole number from 0 to 65535, not '70000'" in capsys.readouterr().err
