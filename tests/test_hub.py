"""Pushing to the Hugging Face Hub and loading from it, against a server on loopback."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import captioning
from captioning.captioner import Captioner
from captioning.commands import main
from captioning.data.photo_files import photo_hash
from captioning.data.readers import reader_for
from captioning.data.records import Record
from captioning.errors import InputError
from tests.conftest import draw_photos, refusal
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
        assert (ours.text, ours.score) == (theirs.text, theirs.score)
        assert ours.probabilities == theirs.probabilities


def test_a_pushed_folder_is_loaded_by_its_address_and_offline(
    checkpoint: Path,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    shapes_records: list[Record],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    folder = tmp_path / "exported"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    capsys.readouterr()
    commit = pushed(str(folder), ADDRESS, capsys=capsys)
    before = captioning.load(checkpoint)
    addresses = f"{ADDRESS}@{commit}", f"{ADDRESS}@main", ADDRESS, Path(ADDRESS)
    for is_offline in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
        for address in addresses:
            same(before, captioning.load(address), shapes_records)
    with pytest.raises(InputError, match="not in the cache"):
        captioning.load("hf://someone/other")
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
    assert "no such model or data set, or a private one" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["imagefolder", "parquet"])
def test_a_data_set_is_read_by_its_address(
    kind: str, hub: HubServer, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = tmp_path / "walls", "hf://datasets/someone/walls"
    draw_photos(folder, "train/0.png", "train/1.png", "validation/2.png")
    expected = photo_hash(folder / "validation/2.png")
    rows = {"train": "0.png,a wall\n1.png,a door\n", "validation": "2.png,a roof\n"}
    for split, lines in rows.items():
        (folder / split / "metadata.csv").write_text(f"file_name,text\n{lines}")
    if kind == "parquet":
        datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
        for split, lines in rows.items():
            names, texts = zip(*(line.split(",") for line in lines.splitlines()), strict=True)
            image = [(folder / split / name).read_bytes() for name in names]
            table = datasets.Dataset.from_dict({"image": image, "text": texts})
            table.to_parquet(tmp_path / f"hub/data/{split}-00000-of-00001.parquet")
        folder = tmp_path / "hub"
    files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.glob("*/*")}
    hub.branches["someone/walls"] = {}
    commit = hub.commit("someone/walls", "main", files)
    for is_offline in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
        for name in (address, Path(address), f"{address}@{commit}"):
            [record] = reader_for(name).read().records("val")
            assert photo_hash(record.image) == expected
            assert record.captions == ("a roof",)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert main(["check", address]) == 0
    assert "no such model or data set" in refusal(["check", "hf://datasets/a/b"], capsys)
    assert "give hf://datasets/OWNER/NAME" in refusal(["check", "hf://someone/walls"], capsys)


@pytest.mark.usefixtures("hub")
def test_mistakes_a_missing_login_and_a_dead_server_are_one_line(
    shapes_records: list[Record], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pushed("shapes", ADDRESS, capsys=capsys)
    caption, push = ["caption", str(shapes_records[0].image), "--model"], ["push", "shapes"]
    for arguments, expected in (
        ([*caption, "hf://someone/missing"], "no such model"),
        ([*caption, f"{ADDRESS}@missing"], "no such revision"),
        ([*caption, "hf://scenes"], "give hf://OWNER/NAME"),
        ([*push, "someone/scenes"], "give hf://OWNER/NAME"),
        (["push", "missing.ckpt", ADDRESS], "missing.ckpt: no such model"),
    ):
        assert expected in refusal(arguments, capsys)
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in refusal([*push, ADDRESS], capsys)
    gone = "http://127.0.0.1:9"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", gone)
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", gone, raising=False)
    with pytest.raises(InputError, match="cannot be reached"):
        captioning.load(ADDRESS)
    assert "cannot be reached" in refusal([*push, ADDRESS], capsys)


def test_an_address_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'captioning\[hub\]'"):
        captioning.load(ADDRESS)
