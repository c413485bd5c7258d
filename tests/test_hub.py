"""Pushing to the Hugging Face Hub and loading from it, against a server on loopback."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import captioning
from captioning.captioner import Captioner
from captioning.commands import main
from captioning.data.records import Record
from captioning.errors import InputError
from tests.hub_server import TOKEN, HubServer, hub_server

Capture = pytest.CaptureFixture[str]

ADDRESS = "hf://someone/scenes"

FILE = "/{repo_id}/resolve/{revision}/{filename}"

# The Hub's library uploads by a way that its HTTP library is phasing out.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The server, with an empty cache and somebody logged in."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    from huggingface_hub import close_session, constants

    with hub_server() as server:
        # The library reads the environment once, when it is imported.
        for name, value in {
            "ENDPOINT": server.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.address + FILE,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_XET": True,
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", server.address, raising=False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
    close_session()


def pushed(*options: str, capsys: Capture) -> str:
    """Push a model; returns the hash of the commit."""
    assert main(["push", *options]) == 0
    found = re.search(r"/commit/(\w{40})$", capsys.readouterr().out.strip())
    assert found
    return found[1]


def same(one: Captioner, other: Captioner, records: list[Record]) -> None:
    """Check that parameters are equal bit by bit, and captions to their last digit."""
    for name, value in one.model.state_dict().items():
        assert value.equal(other.model.state_dict()[name])
    photos = [record.image for record in records]
    for ours, theirs in zip(one(photos), other(photos), strict=True):
        assert (ours.text, ours.score, ours.probabilities) == (
            theirs.text,
            theirs.score,
            theirs.probabilities,
        )


def test_a_pushed_folder_is_loaded_by_its_address(
    checkpoint: Path, hub: HubServer, shapes_records: list[Record], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "exported"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    capsys.readouterr()
    commit = pushed(str(folder), ADDRESS, capsys=capsys)
    before = captioning.load(checkpoint)
    for address in (f"{ADDRESS}@{commit}", f"{ADDRESS}@main", ADDRESS, Path(ADDRESS)):
        same(before, captioning.load(address), shapes_records)
    card = hub.commits[commit]["README.md"].decode()
    assert f'captioning.load("{ADDRESS}")' in card
    assert not any(request.endswith("README.md") for request in hub.requests)


def test_a_name_is_pushed_to_a_branch_of_a_private_repository(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    shapes_records: list[Record],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes").mkdir()  # a name means the shipped model, as everywhere
    pushed("shapes", ADDRESS, "--private", "--revision", "v2", capsys=capsys)
    assert hub.private == {"someone/scenes"}
    assert "model.safetensors" not in hub.commits[hub.branches["someone/scenes"]["main"]]
    same(captioning.load("shapes"), captioning.load(f"{ADDRESS}@v2"), shapes_records)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "other"))
    assert main(["caption", "--model", f"{ADDRESS}@v2", str(shapes_records[0].image)]) == 1
    assert "no such model, or a private one" in capsys.readouterr().err


def test_what_is_in_the_cache_is_loaded_offline(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, shapes_records: list[Record], capsys: Capture
) -> None:
    pushed("shapes", ADDRESS, capsys=capsys)
    captioning.load(ADDRESS)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    same(captioning.load("shapes"), captioning.load(ADDRESS), shapes_records)
    with pytest.raises(InputError, match="not in the cache"):
        captioning.load("hf://someone/other")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["caption", "--model", "hf://someone/missing", "x.jpg"], "no such model"),
        (["caption", "--model", f"{ADDRESS}@missing", "x.jpg"], "no such revision"),
        (["caption", "--model", "hf://scenes", "x.jpg"], "give hf://OWNER/NAME"),
        (["push", "shapes", "someone/scenes"], "give hf://OWNER/NAME"),
        (["push", "missing.ckpt", ADDRESS], "missing.ckpt: no such model"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    expected: str,
    hub: HubServer,
    shapes_records: list[Record],
    capsys: Capture,
) -> None:
    pushed("shapes", ADDRESS, capsys=capsys)
    arguments = [str(shapes_records[0].image) if each == "x.jpg" else each for each in arguments]
    assert main(arguments) in (1, 2)
    errors = capsys.readouterr().err
    assert expected in errors
    assert len(errors.strip().splitlines()) == 1


def test_pushing_without_a_login_says_so(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", "shapes", ADDRESS]) == 1
    assert "hf auth login" in capsys.readouterr().err


def test_a_server_that_is_gone_is_one_line(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    gone = "http://127.0.0.1:9"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", gone)
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", gone, raising=False)
    with pytest.raises(InputError, match="cannot be reached"):
        captioning.load(ADDRESS)
    assert main(["push", "shapes", ADDRESS]) == 1
    errors = capsys.readouterr().err
    assert "cannot be reached" in errors
    assert len(errors.strip().splitlines()) == 1


def test_an_address_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'captioning\[hub\]'"):
        captioning.load(ADDRESS)
