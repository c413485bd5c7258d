from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import captioning
from captioning.commands import main
from captioning.shapes import picture, random_scene
from captioning.shelf import path_of, shipped_models

NAMES = [model.name for model in shipped_models()]


@pytest.mark.parametrize("model", shipped_models(), ids=NAMES)
def test_a_shipped_model_captions_is_small_and_has_a_card(
    model: captioning.shelf.ShippedModel,
) -> None:
    noise = torch.randint(256, (3, 90, 120), dtype=torch.uint8)
    assert captioning.load(model.name)(noise).words
    assert model.file.stat().st_size <= 30_000_000
    assert "# " in model.card.read_text()
    assert all((model.data, model.scores, model.licence))


def test_the_default_model_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    printed = capsys.readouterr().out
    assert [line.split(" ")[0] for line in printed.splitlines() if line[0] != " "] == NAMES
    assert ", the default" in printed.splitlines()[0]
    for model in shipped_models():
        assert model.scores in printed


def test_a_path_is_not_taken_for_a_name(tmp_path: Path) -> None:
    assert path_of("shapes") == shipped_models()[-1].file
    for path in ("./shapes", "runs/shapes", "shapes.safetensors", "../shipped/shapes"):
        assert path_of(path) == Path(path)
    assert path_of(tmp_path / "shapes") == tmp_path / "shapes"


def test_photos_are_captioned_without_naming_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    cat = Path(captioning.__file__).with_name("web") / "photos" / "cat.jpg"
    assert main(["caption", str(cat), "--confidence"]) == 0
    confidence, path, caption = capsys.readouterr().out.strip().split("\t")
    assert 0 < float(confidence) < 1
    assert path == str(cat)
    assert "cat" in caption.split()
    assert captioning.load()(cat).text == caption


def test_the_photo_model_is_unsure_of_noise_and_of_drawn_scenes() -> None:
    captioner = captioning.load()
    random = np.random.default_rng(0)
    odd: list[Any] = [random.integers(0, 256, (90, 120, 3), dtype=np.uint8) for _ in range(3)]
    odd += [Image.fromarray(picture(random_scene(random), 128)) for _ in range(5)]
    cat = Path(captioning.__file__).with_name("web") / "photos" / "cat.jpg"
    sure = captioner(cat).confidence
    assert sure is not None
    confidences = [caption.confidence or 0.0 for caption in captioner(odd)]
    assert max(confidences) < sure
    assert np.mean(confidences) < 0.2
