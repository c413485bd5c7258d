"""Models that are pushed to and loaded from the Hugging Face Hub, whose library is a stand-in."""

import importlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

import captioning
from captioning.commands import main
from captioning.errors import InputError
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]

ADDRESS = "hf://someone/scenes"


class Hub:
    """The library's calls with their signatures; branches are folders on the disk."""

    def __init__(self, folder: Path, library: Any) -> None:
        self.folder = folder
        self.api = create_autospec(library.HfApi, instance=True)
        self.api.create_repo.side_effect = self.make
        self.api.create_branch.side_effect = self.make
        self.api.create_commit.side_effect = self.commit
        self.download = create_autospec(library.snapshot_download, side_effect=self.copy)

    def make(self, repository: str, *, branch: str = "main", **_: Any) -> None:
        (self.folder / repository / branch).mkdir(parents=True, exist_ok=True)

    def commit(
        self, repository: str, added: Sequence[Any], *, revision: str | None, **_: Any
    ) -> Any:
        for each in added:
            to = self.folder / repository / (revision or "main") / each.path_in_repo
            shutil.copy(each.path_or_fileobj, to)
        return SimpleNamespace(commit_url="https://the/commit")

    def copy(self, repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        branch = self.folder / repository / (revision or "main")
        if not branch.parent.exists():
            raise self.error("RepositoryNotFoundError", 404)
        if not branch.exists():
            raise self.error("RevisionNotFoundError", 404)
        copied = self.folder / "cache"
        shutil.copytree(branch, copied, dirs_exist_ok=True)
        assert {file.name for file in copied.iterdir()} >= {*allow_patterns}
        return str(copied)

    def error(self, name: str, status: int | None = None) -> Exception:
        response = {"response": MagicMock(status_code=status)} if status else {}
        errors = importlib.import_module("huggingface_hub.errors")
        made: Exception = getattr(errors, name)("of the library", **response)
        return made


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    made = Hub(tmp_path / "hub", library)
    monkeypatch.setattr(library, "HfApi", lambda: made.api)
    monkeypatch.setattr(library, "snapshot_download", made.download)
    return made


def test_a_pushed_folder_is_loaded_by_its_address(
    checkpoint: Path, hub: Hub, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "exported"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    assert main(["push", str(folder), ADDRESS]) == 0
    assert capsys.readouterr().out.endswith("https://the/commit\n")
    before = captioning.load(checkpoint).model.state_dict()
    for address in (f"{ADDRESS}@main", ADDRESS, Path(ADDRESS)):
        after = captioning.load(address).model.state_dict()
        assert all(value.equal(after[name]) for name, value in before.items())
    card = (hub.folder / "someone/scenes/main/README.md").read_text()
    assert f'captioning.load("{ADDRESS}")' in card


def test_a_name_is_pushed_to_a_branch_of_a_private_repository(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes").mkdir()  # a name means the shipped model, as everywhere
    assert main(["push", "shapes", ADDRESS, "--private", "--revision", "v2"]) == 0
    assert hub.api.create_repo.call_args.kwargs["private"] is True
    assert not list((hub.folder / "someone/scenes/main").iterdir())
    assert captioning.load(f"{ADDRESS}@v2").vocabulary == captioning.load("shapes").vocabulary


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["caption", "x.jpg", "--model", "hf://someone/missing"], "no such model"),
        (["caption", "x.jpg", "--model", f"{ADDRESS}@missing"], "no such revision"),
        (["caption", "x.jpg", "--model", "hf://scenes"], "give hf://OWNER/NAME"),
        (["push", "shapes", "someone/scenes"], "give hf://OWNER/NAME"),
        (["push", "missing.ckpt", ADDRESS], "missing.ckpt: no such model"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], expected: str, hub: Hub, capsys: Capture
) -> None:
    hub.make("someone/scenes")
    assert expected in refusal(arguments, capsys)


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("GatedRepoError", 403, "its owner must let you in"),
        ("LocalEntryNotFoundError", None, "not in the cache"),
        ("LocalTokenNotFoundError", None, "nobody has logged in; run hf auth login"),
        ("HfHubHTTPError", 401, r"refused \(401\); run hf auth login"),
        ("HfHubHTTPError", 500, "the Hub cannot be reached"),
    ],
)
def test_errors_of_the_library_are_lines_with_a_remedy(
    name: str, status: int | None, expected: str, hub: Hub
) -> None:
    hub.download.side_effect = hub.error(name, status)
    with pytest.raises(InputError, match=f"^{ADDRESS}: .*{expected}"):
        captioning.load(ADDRESS)


def test_an_address_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'captioning\[hub\]'"):
        captioning.load(ADDRESS)
