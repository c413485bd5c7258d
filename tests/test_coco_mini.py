"""On COCO's own layout and real photos, where a developer's machine has them."""

import json
from pathlib import Path

import pytest

from captioning.commands import main
from captioning.shelf import CONFIGS

pytestmark = pytest.mark.integration

CONFIG = CONFIGS / "overfit.yaml"


@pytest.fixture(scope="module")
def overfitted(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt coco-mini's 60 training photos by heart."""
    weights = shared_data.parent / "weights/mobilenet_v2_imagenet.pth"
    if not weights.exists():
        pytest.skip(f"no weights in {weights.parent}")
    folder = tmp_path_factory.mktemp("overfit")
    options = {
        "--config": CONFIG,
        "--data.reader.init_args.root": shared_data / "coco-mini",
        "--data.features": folder / "features",
        "--data.workers": 0,
        "--model.encoder.init_args.weights": weights,
        "--trainer.accelerator": "cpu",
        "--trainer.default_root_dir": folder / "run",
    }
    assert main(["train", *(str(part) for pair in options.items() for part in pair)]) == 0
    return folder / "run/best.ckpt"


def scores(model: Path, data: Path, split: str, folder: Path) -> dict[str, float]:
    options = ["--model", str(model), "--data", str(data), "--split", split, "--device", "cpu"]
    assert main(["evaluate", *options, "--out", str(folder)]) == 0
    values: dict[str, float] = json.loads((folder / "scores.json").read_text())
    return values


def test_photos_learnt_by_heart_are_captioned_as_people_did(
    overfitted: Path, shared_data: Path, tmp_path: Path
) -> None:
    learnt, new = (
        scores(overfitted, shared_data / "coco-mini", split, tmp_path) for split in ("train", "val")
    )
    assert learnt["images"] == 60
    assert learnt["BLEU-4"] > 0.6
    assert new["images"] == 20
    assert 0 < new["BLEU-1"] < 0.6
