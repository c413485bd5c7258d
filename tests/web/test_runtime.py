import hashlib
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from captioning.errors import InputError
from captioning.web import runtime
from captioning.web.runtime import FILES, PACKAGE, SHA512, VERSION, runtime_files
from tests.web.conftest import Served

WHOLE = {name: member.encode() for name, member in FILES.items()}  # as `small_package` has them


def checksum(path: Path) -> str:
    return b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


@pytest.fixture
def registry(
    tmp_path: Path, small_package: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The package's file in a registry on loopback, from which it is downloaded."""
    folder = tmp_path / "registry" / PACKAGE / "-"
    folder.mkdir(parents=True)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", served(tmp_path / "registry"))
    return Path(shutil.copy(small_package, folder / f"{PACKAGE}-{VERSION}.tgz"))


def test_a_package_is_read_or_downloaded(
    registry: Path, small_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SHA512", checksum(registry))
    assert runtime_files() == runtime_files(small_package) == WHOLE


def test_a_package_with_another_checksum_is_refused(registry: Path) -> None:
    with pytest.raises(InputError, match="another file than npm published; run npm pack"):
        runtime_files()


def test_a_registry_without_the_package_is_named(registry: Path) -> None:
    registry.unlink()
    with pytest.raises(InputError, match=r"^http://127.*cannot be downloaded \(File not found"):
        runtime_files()


@pytest.mark.parametrize("content", [b"", b"text" * 1000, None])
def test_other_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "file.tgz").write_bytes(content)
    with pytest.raises(InputError, match=r"file.tgz: (not the npm package|no such file)"):
        runtime_files(tmp_path / "file.tgz")


@pytest.mark.integration
def test_the_checksum_is_that_of_the_package_that_npm_gives(package: Path) -> None:
    assert checksum(package) == SHA512
    assert all(len(content) > 10_000 for content in runtime_files(package).values())
