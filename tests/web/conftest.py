import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from captioning.web.site import PACKAGE, RUNTIME, VERSION
from tests.conftest import MadeOnce


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
