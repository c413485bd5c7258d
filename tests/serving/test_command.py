import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from captioning.commands import main


@contextmanager
def serving(errors: Path, end: int) -> Iterator[httpx.URL]:
    """The address of a process that serves a model until the signal `end`."""
    options = ["--model", "shapes", "--port", "0", "--device", "cpu"]
    command = [sys.executable, "-m", "captioning", "serve", *options]
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield httpx.URL(process.stdout.readline().strip())
        finally:
            process.send_signal(end)
            assert process.wait() == 0


@pytest.mark.integration
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_and_ends_by_a_signal(
    photo: bytes, tmp_path: Path, end: int
) -> None:
    with serving(tmp_path / "stderr", end) as url:
        assert url.host == "127.0.0.1"
        chosen = {"view": "true", "map": "grad-cam"}
        address = url.copy_with(path="/caption")
        answer = httpx.post(address, files={"photo": photo}, data=chosen, timeout=30)
        idle = socket.create_connection((url.host, url.port), 20)
    idle.close()
    assert answer.json()["captions"][0]["words"]
    assert answer.json()["view"]["captions"][0]["maps"][0]["map"] == "grad-cam"
    assert (tmp_path / "stderr").read_bytes() == b""


def test_a_taken_port_is_reported_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "none.ckpt", "--port", str(port)]) == 1
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"captioning: cannot listen on 127.0.0.1, port {port} (")
