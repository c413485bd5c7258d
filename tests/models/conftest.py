"""A server on loopback from which weights are downloaded."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for torch's downloads, which start from nothing and go straight to loopback."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "downloads"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "downloads"


@pytest.fixture
def server(tmp_path: Path, downloads: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that serves the files of `tmp_path`."""
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()
