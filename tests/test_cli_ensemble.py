import json
from pathlib import Path

import pytest
import torch

from captioning import load
from captioning.commands import main
from captioning.data.feature_cache import feature_cache
from captioning.data.readers import Coco
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]


def given(models: list[str]) -> list[str]:
    """The models as options."""
    return [option for model in models for option in ("--model", model)]


@pytest.fixture
def models(checkpoint: Path, tmp_path: Path) -> list[str]:
    """Two models on one frozen encoder, each in a folder of its own."""
    paths = []
    saved = torch.load(checkpoint, weights_only=True)
    saved["captioner"]["model"]["encoder"]["trainable_stages"] = 0
    for name in ("first", "second"):
        paths.append(tmp_path / name / "best.ckpt")
        paths[-1].parent.mkdir()
        torch.save(saved, paths[-1])
        words = saved["state_dict"]["model.decoder.output.bias"]
        words += torch.randn(words.shape, generator=torch.Generator().manual_seed(1))
    return [str(path) for path in paths]


def test_a_manifest_names_all_members_of_an_ensemble(
    models: list[str], shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    command = ["caption", str(shapes_data / "val"), "--device", "cpu"]
    command += ["--out", str(tmp_path / "out")]
    assert main([*command, *given(models)]) == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert len(set(manifest["model"])) == 2
    assert main([*command, *given(models)]) == 0
    capsys.readouterr()
    for others in (models[:1], models[1:], models[::-1]):
        assert "begun with another model" in refusal([*command, *given(others)], capsys)


def test_an_ensemble_is_evaluated_from_features_too(
    models: list[str], shapes_data: Path, tmp_path: Path
) -> None:
    evaluate = ["evaluate", "--data", str(shapes_data), "--device", "cpu", *given(models)]
    assert main(evaluate) == 0
    captions = (tmp_path / "first/ensemble-val/captions.json").read_bytes()
    captioner = load(models[0])
    images = [record.image for record in Coco(shapes_data).read("val")]
    feature_cache(tmp_path / "features", captioner.model.encoder, captioner.preprocessing, images)
    with_features = ["--features", str(tmp_path / "features"), "--out", str(tmp_path / "again")]
    assert main([*evaluate, *with_features]) == 0
    assert (tmp_path / "again/captions.json").read_bytes() == captions
