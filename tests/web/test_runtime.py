import hashlib
import shutil
import tarfile
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


def test_the_files_of_a_package_are_read(small_package: Path) -> None:
    assert runtime_files(small_package) == WHOLE


def test_a_package_with_the_published_checksum_is_downloaded(
    registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SHA512", checksum(registry))
    assert runtime_files() == WHOLE


def test_a_package_with_another_checksum_is_refused(registry: Path) -> None:
    with pytest.raises(InputError, match="another file than npm published; run npm pack"):
        runtime_files()


def test_a_registry_without_the_package_is_named(registry: Path) -> None:
    registry.unlink()
    with pytest.raises(
        InputError, match=r"^http://127.*cannot be downloaded \(File not found\); run"
    ):
        runtime_files()


@pytest.mark.parametrize("content", [b"", b"text" * 1000])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.tgz").write_bytes(content)
    with pytest.raises(InputError, match=r"file.tgz: not the npm package.*run npm pack"):
        runtime_files(tmp_path / "file.tgz")


@pytest.mark.parametrize("name", ["missing.tgz", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        runtime_files(tmp_path / name)


@pytest.mark.parametrize("target", ["large", "itself"])
def test_links_in_a_package_are_not_followed(tmp_path: Path, target: str) -> None:
    with tarfile.open(tmp_path / "links.tgz", "w:gz") as archive:
        for name in FILES.values():
            link = tarfile.TarInfo(name)
            link.type = tarfile.SYMTYPE
            link.linkname = Path(name).name if target == "itself" else target
            archive.addfile(link)
    with pytest.raises(InputError, match="not the npm package"):
        runtime_files(tmp_path / "links.tgz")


def test_a_download_ends_at_the_limit(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOST_BYTES", 1000)
    monkeypatch.setattr(runtime, "PART", 500)
    written = []
    monkeypatch.setattr(runtime.hashlib, "sha512", lambda: Counted(written))
    registry.write_bytes(b"x" * 100_000)
    with pytest.raises(InputError, match="another file"):
        runtime_files()
    assert sum(written) == 1500


class Counted:
    """A checksum that notes the lengths of its parts."""

    def __init__(self, lengths: list[int]) -> None:
        self.update = lambda part: lengths.append(len(part))

    def digest(self) -> bytes:
        return b""


@pytest.mark.integration
def test_the_checksum_is_that_of_the_package_that_npm_gives(package: Path) -> None:
    assert checksum(package) == SHA512
    assert {name: len(content) > 10_000 for name, content in runtime_files(package).items()} == (
        dict.fromkeys(FILES, True)
    )
