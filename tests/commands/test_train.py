"""`captioning train` and `captioning features`: runs, features, and mistakes in configurations."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from captioning.commands import main
from captioning.shapes import write_shapes
from tests.conftest import refusal
from tests.training.conftest import QUICK

Capture = pytest.CaptureFixture[str]


def test_a_configuration_names_classes_of_an_imported_module(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "from captioning.training import CrossEntropy\n\nclass Mine(CrossEntropy):\n    pass\n"
    (tmp_path / "my_objective_for_a_test.py").write_text(lines)
    mine = ["--model.objective", "my_objective_for_a_test.Mine"]
    train = ["train", "--config", str(tiny_config), "--trainer.fast_dev_run", "true", *mine]
    assert "denied" in refusal(train, capsys, code=1)
    assert main([*train, "--import", "my_objective_for_a_test"]) == 0


@pytest.fixture
def frozen(tiny_config: Path) -> list[str]:
    """Options of a training whose encoder is random and frozen."""
    frozen = ["--config", str(tiny_config), "--model.encoder.init_args.trainable_stages", "0"]
    return [*frozen, *QUICK]


def test_train_and_evaluate_take_the_features_that_were_computed_before(
    frozen: list[str],
    shapes_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    run, features = tmp_path / "run", str(tmp_path / "features")
    frozen += ["--data.features", features, "--data.mirror", "true"]
    assert main(["features", *frozen]) == 0
    assert capsys.readouterr().out == f"{features}\n"
    files = tmp_path.glob("features*/features-000000.safetensors")
    indexes = [json.loads(safe_open(file, "pt").metadata()["index"]) for file in files]
    assert len({index["fingerprint"] for index in indexes}) == 2  # of mirrored photos, too
    train = ["train", *frozen, "--trainer.max_epochs=1", "--trainer.default_root_dir", str(run)]
    evaluate = ["evaluate", "--model", str(run / "best.ckpt"), "--data", str(shapes_data)]
    with monkeypatch.context() as patch:  # no photo is read
        patch.setattr("captioning.data.preprocessing.read_reduced_photo", None)
        assert main(train) == 0
        assert capsys.readouterr().out == f"{run / 'best.ckpt'}\n"
        assert main([*evaluate, "--out", str(tmp_path / "a"), "--features", features]) == 0
    assert main([*evaluate, "--out", str(tmp_path / "b")]) == 0
    for name in ("captions.json", "scores.json"):
        found, again = (json.loads((tmp_path / folder / name).read_text()) for folder in "ab")
        assert found == (again if name == "captions.json" else pytest.approx(again))


@pytest.mark.integration
def test_two_processes_write_what_one_would(frozen: list[str], tmp_path: Path) -> None:
    write_shapes(tmp_path / "scenes", train=32, val=6, test=1, pixels=48)  # of three batches
    data = ["--data.reader.init_args.root", str(tmp_path / "scenes")]
    features = ["features", *frozen, *data, "--data.features"]
    two = [*features, str(tmp_path / "two"), "--trainer.devices", "2"]
    process = subprocess.run(
        [sys.executable, "-m", "captioning", *two], capture_output=True, text=True, check=True
    )
    assert process.stdout == f"{tmp_path / 'two'}\n"
    assert main([*features, str(tmp_path / "one")]) == 0
    for number in range(3):
        file = f"features-{number:06d}.safetensors"
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_partly_trained_encoder_uses_features_of_frozen_stages(
    frozen: list[str], tmp_path: Path, capsys: Capture
) -> None:
    train = ["train", *frozen, "--trainer.precision", "32"]
    train += ["--model.encoder.init_args.trainable_stages", "1", "--trainer.max_epochs", "1"]
    train += ["--trainer.log_every_n_steps", "1", "--trainer.limit_train_batches", "3"]
    losses = []
    for name, more in {"cached": ["--data.features", str(tmp_path / "f")], "anew": []}.items():
        assert main([*train, "--trainer.default_root_dir", str(tmp_path / name), *more]) == 0
        lines = (tmp_path / name / "csv" / "metrics.csv").read_text().splitlines()
        found = [row["train/loss"] for row in csv.DictReader(lines)]
        losses.append([float(loss) for loss in found if loss])
        hint = "encoding 10 photos; for fewer give --data.limit N\n"
        assert (hint in capsys.readouterr().err) == (name == "cached")
    assert len(losses[0]) > 1
    np.testing.assert_allclose(*losses, rtol=2e-3)  # features are kept in half precision


@pytest.mark.parametrize(("split", "workers"), [("train", "1"), ("val", "0")])
def test_an_unreadable_photo_met_in_training(
    tiny_config: Path,
    shapes_data: Path,
    tmp_path: Path,
    split: str,
    workers: str,
    capsys: Capture,
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    (photo := next((data / split).iterdir())).write_bytes(b"")
    given = ["--data.reader.init_args.root", str(data), "--data.workers", workers]
    given += ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_epochs", "1"]
    assert main(["train", "--config", str(tiny_config), *given]) == 1
    *earlier, error = capsys.readouterr().err.splitlines()
    assert error.startswith(f"captioning: {photo}: empty file (0 bytes); copy or download")
    assert len(earlier) <= 1  # what is trained on what
    assert not any("Traceback" in line for line in earlier)
