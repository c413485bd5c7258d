import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from captioning.cli import main
from captioning.data.records import Record


def test_serve_prints_its_address_captions_photos_and_ends_by_an_interrupt(
    checkpoint: Path, shapes_records: list[Record]
) -> None:
    command = ["serve", "--model", str(checkpoint), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(
        [sys.executable, "-m", "captioning", *command], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        photo = shapes_records[0].image.read_bytes()
        answer = httpx.post(f"{address}/caption", files={"photo": photo}, timeout=30)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert answer.json()["captions"][0]["words"]


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", "none.ckpt", "--port", str(port)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"captioning: cannot listen on 127.0.0.1, port {port} (")


def test_a_host_that_cannot_be_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", "none.ckpt", "--host", "no.such.host.invalid"]) == 2
    assert capsys.readouterr().err.startswith("captioning: cannot listen on no.such.host.invalid")


def test_a_port_that_cannot_be_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", "none.ckpt", "--port", "70000"]) == 2
    assert "'70000' is not a port, 0 to 65535" in capsys.readouterr().err
