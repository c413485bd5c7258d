import contextlib
import functools
import http.server
import io
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from captioning.web.site import PACKAGE, RUNTIME, VERSION
from tests.conftest import MadeOnce

Served = Callable[[Path], str]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves folders by Python's own server; gives their addresses."""
    with contextlib.ExitStack() as stack:

        def address_of(folder: Path) -> str:
            handler = functools.partial(Quiet, directory=str(folder))
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(server.server_close)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/"

        yield address_of


@pytest.fixture
def small_package(tmp_path: Path) -> Path:
    """An npm package of the same layout, with other contents."""
    path = tmp_path / "package.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in RUNTIME.values():
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return path


@pytest.fixture(scope="session")
def package(made_once: MadeOnce) -> Path:
    """The npm package itself."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")

    def pack(folder: Path) -> None:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    return made_once("onnxruntime-web", pack) / f"{PACKAGE}-{VERSION}.tgz"
