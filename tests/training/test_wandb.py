"""Offline W&B runs, read with W&B's own `wandb leet inspect`, and how a run is logged in."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from pytorch_lightning.loggers import WandbLogger

from captioning.data.readers import Coco
from captioning.errors import InputError
from captioning.training.loggers import loggers, wandb_options
from captioning.training.train_cli import train
from captioning.training.validation_images import IMAGE_SCORES
from tests.training.conftest import QUICK, Patch, interrupt_at, saved

BOARD = ("--validation_table.images=2", "--log_model=true", "--trainer.log_every_n_steps=1")
BOARD += ("--save_every=0", "--compile_after=-1")

GUIDE = Path(__file__).parents[2] / "docs/how-to/wandb.md"

STEP = "trainer/global_step"

Parts = list[list[dict[str, Any]]]


def of_kind(part: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in part if record["type"] == kind]


def history(part: list[dict[str, Any]], name: str) -> list[int]:
    """The training's steps at which a metric was logged."""
    rows = [row["item"] for row in of_kind(part, "history")]
    return [int(row[STEP]) for row in rows if name in row or f"{name}._type" in row]


@pytest.fixture(scope="module")
def resumed(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a training of 9 steps, which was interrupted in step 5 and resumed."""
    folder = tmp_path_factory.mktemp("boards")
    run, place = folder / "run", "--trainer.default_root_dir"
    given = ["--config", str(tiny_config), place, str(run), *QUICK, *BOARD]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_CACHE_DIR", str(folder / "cache"))
        for name in ("WANDB_DATA_DIR", "WANDB_SERVICE"):  # the service of this process, if any
            patch.delenv(name, raising=False)
        with pytest.MonkeyPatch.context() as interrupting:
            interrupt_at(5, interrupting)
            with pytest.raises(KeyboardInterrupt):
                train(given)
        train([*given, "--resume"])
        yield run


@pytest.fixture(scope="module")
def parts(resumed: Path) -> Parts:
    """The records of each of the run's offline parts, in the order of time."""
    paths = resumed.glob("wandb/offline-run-*/*.wandb")
    found = []
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append([json.loads(line) for line in lines.splitlines()])
    return found


@pytest.mark.integration
def test_a_resumed_training_goes_on_in_its_own_run(resumed: Path, parts: Parts) -> None:
    [first, second] = [of_kind(part, "run")[0] for part in parts]
    assert first["run_id"] == second["run_id"] == saved(resumed)["wandb_id"]
    assert second["resume"]  # `wandb sync` numbers its rows after those of the first part
    assert len(list(resumed.glob(f"wandb/offline-run-*-{first['run_id']}"))) == 2
    losses = [history(part, "train/loss") for part in parts]
    assert losses == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    for name in ("val/CIDEr", "val/overlay/0", "val/captions"):
        assert [len(history(part, name)) for part in parts] == [1, 2]
    expected = yaml.safe_load((resumed / "config.yaml").read_text())
    found = of_kind(parts[0], "run")[0]["config"]["update"]
    assert {name: found[name] for name in expected} == expected


@pytest.mark.integration
def test_the_best_checkpoint_is_an_artifact_with_aliases(resumed: Path, parts: Parts) -> None:
    artifacts = (of_kind(part, "artifact") for part in parts)
    first, [model] = ([each for each in its if each["type"] == "model"] for its in artifacts)
    assert first == []
    assert set(model["aliases"]) == {"best", "latest"}
    [file] = model["manifest"]["contents"]
    assert Path(file["local_path"]).read_bytes() == (resumed / "best.ckpt").read_bytes()


@pytest.mark.integration
def test_all_of_a_run_lies_in_its_own_folder(resumed: Path, parts: Parts) -> None:
    entries = {path.name for path in (resumed / "wandb").iterdir() if not path.is_symlink()}
    assert {name for name in entries if "offline-run" not in name} == {"data"}
    [folder] = re.findall(r"`(files/media/\S+)`", GUIDE.read_text())
    assert len(list(resumed.glob(f"wandb/offline-run-*/{folder}/*.jpg"))) == 3 * 2
    for artifact in (each for part in parts for each in of_kind(part, "artifact")):
        for file in artifact["manifest"]["contents"]:
            assert Path(file["local_path"]).is_file()  # what `wandb sync` uploads


def staged(run: Path) -> dict[str, bytes]:
    """What W&B will upload, by its SHA-256, in the order of the epochs."""
    files = run.glob("wandb/data/artifacts/staging/*")
    in_order = sorted(files, key=lambda path: path.stat().st_mtime_ns)
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path.read_bytes() for path in in_order}


@pytest.mark.integration
def test_each_validation_logs_a_table_of_the_same_images(resumed: Path, shapes_data: Path) -> None:
    records = Coco(shapes_data).read().records("val")[::2]
    files = staged(resumed)
    tables = [json.loads(content) for content in files.values() if content.startswith(b"{")]
    assert len(tables) == 3
    for table in tables:
        scores = (*IMAGE_SCORES, "view", "overlay")
        assert table["columns"] == ["image", "references", "caption", *scores]
        assert [row[1] for row in table["data"]] == ["\n".join(r.captions) for r in records]
        for row in table["data"]:
            kinds = [row[place]["_type"] for place in (0, 6, 7)]
            assert kinds == ["image-file", "html-file", "image-file"]
            page = files[row[6]["sha256"]].decode()
            [shown] = re.findall(r"data-attention-view>(.*?)</script>", page)
            [caption] = json.loads(shown)["captions"]
            assert caption["caption"] == row[2]
            assert all(len(word["runners_up"]) == 3 for word in caption["words"])
            assert "wandb" not in page  # nor any other address that it would ask


def test_without_a_login_w_and_b_stays_offline_and_asks_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    wandb.teardown()  # which keeps the mode of earlier tests
    assert wandb_options({})["mode"] == "offline"
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(InputError, match="nobody has logged in; run `wandb login`"):
        wandb_options({})
    monkeypatch.setenv("WANDB_MODE", "dryrun")  # by an offline logger of Lightning's before
    assert wandb_options({})["mode"] == "offline"


def test_variables_of_w_and_b_name_project_and_run(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for variables, expected in (
        ({}, ("captioning", "run")),
        ({"WANDB_PROJECT": "photos", "WANDB_NAME": "first"}, ("photos", "first")),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        _, board = loggers(tmp_path / "run", {}, resume=False, uploaded=None)
        assert isinstance(board, WandbLogger)
        assert (board._wandb_init["project"], board._wandb_init["name"]) == expected


def test_the_sweep_file_names_keys_of_a_configuration() -> None:
    sweep = yaml.safe_load((Path(__file__).parents[2] / "docs/how-to/sweep.yaml").read_text())
    names = {"model.learning_rate", "model.decoder.init_args.dropout"}
    assert set(sweep["parameters"]) == names
    assert sweep["metric"]["name"].startswith("val/")
