from pathlib import Path

import pytest

from captioning.captioner import export
from captioning.captioner.calibration import FEATURES, Calibration


@pytest.fixture
def model(checkpoint: Path) -> list[str]:
    return ["--model", str(checkpoint), "--device", "cpu"]


@pytest.fixture
def calibrated(tmp_path: Path) -> list[str]:
    """A model with the confidence 0.27 in every caption."""
    file = tmp_path / "calibrated.safetensors"
    zeros = dict.fromkeys(FEATURES, 0.0)
    calibration = Calibration(1.0, means=zeros, weights=zeros, bias=-1.0, named=(1.0, 0.0))
    export("shapes", file, calibration=calibration)
    return ["--model", str(file), "--device", "cpu"]
