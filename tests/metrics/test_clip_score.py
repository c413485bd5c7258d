"""CLIPScore by random weights against the paper's formula, written out."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.errors import InputError
from captioning.metrics.clip_score import ClipScore, clip_scores
from captioning.metrics.scores import Scores
from tests.clip import save_clip

CAPTIONS = ["A red dog.", "two cats", "a man's " + "very " * 100 + "long walk", "A red dog."]
REFERENCES = [["a dog"], ["cats, two of them", "kittens"], ["a walk"], ["trees", "grass"]]
IMAGES = ["a", "b", "c", "b"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("open_clip", reason="the extra clip is not installed")
    return save_clip(tmp_path_factory.mktemp("clip") / "weights")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Noise of different sizes; the last is transparent in part."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in (("a", (40, 50, 3)), ("b", (90, 33, 3)), ("c", (32, 32, 4))):
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        found[name] = folder / f"{name}.png"
        Image.fromarray(pixels).save(found[name])
    return found


@pytest.fixture(scope="module")
def scores(weights: Path, photos: dict[str, Path]) -> Scores:
    return ClipScore(photos, weights)(CAPTIONS, REFERENCES, IMAGES)


def expected(weights: Path, photos: dict[str, Path]) -> list[tuple[float, float]]:
    """Equation by equation, a caption at a time, by the library alone."""
    import open_clip

    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{weights}")
    model.eval()
    tokenize = open_clip.get_tokenizer(f"local-dir:{weights}")

    def vector(text: str) -> torch.Tensor:
        found: torch.Tensor = model.encode_text(tokenize([f"A photo depicts {text}"]))[0]
        return found.detach().double()

    def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
        return float((one * other).sum() / (one.norm() * other.norm()))

    rows = []
    for caption, references, image in zip(CAPTIONS, REFERENCES, IMAGES, strict=True):
        with Image.open(photos[image]) as picture:
            white = Image.new("RGBA", picture.size, "white")
            white.alpha_composite(picture.convert("RGBA"))
            pixels = preprocess(white.convert("RGB"))
        photo = model.encode_image(pixels[None])[0].detach().double()
        own = 2.5 * max(cosine(vector(caption), photo), 0)
        nearest = max(0.0, *(cosine(vector(caption), vector(text)) for text in references))
        harmonic = 2 / (1 / own + 1 / nearest) if own > 0 and nearest > 0 else 0.0
        rows.append((own, harmonic))
    return rows


@pytest.mark.integration
def test_scores_are_those_of_the_formula(
    scores: Scores, weights: Path, photos: dict[str, Path]
) -> None:
    rows = expected(weights, photos)
    assert len({round(score, 6) for row in rows for score in row}) > 4
    found = np.stack([scores.images["CLIPScore"], scores.images["RefCLIPScore"]], axis=1)
    np.testing.assert_allclose(found, rows, rtol=0, atol=1e-5)
    assert scores.corpus == {name: values.mean() for name, values in scores.images.items()}


@pytest.mark.parametrize(
    ("photo", "references", "by_hand"),
    [
        ([0.6, 0.8], [[1, 0]], (1.5, 2 * 1.5 * 1 / 2.5)),
        ([0.6, 0.8], [[0, 1], [0.8, 0.6]], (1.5, 2 * 1.5 * 0.8 / 2.3)),
        ([0.6, 0.8], [[-1, 0]], (1.5, 0)),
        ([-0.6, 0.8], [[1, 0]], (0, 0)),
        ([0, 1], [[0, 1]], (0, 0)),
    ],
)
def test_scores_of_vectors_are_those_worked_out_by_hand(
    photo: list[float], references: list[list[float]], by_hand: tuple[float, float]
) -> None:
    found = clip_scores(
        np.array([1.0, 0.0]), np.array(photo, dtype=float), np.array(references, dtype=float)
    )
    assert found == pytest.approx(by_hand)


def test_without_open_clip_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match=r"needs open_clip.*pip install 'captioning\[clip\]'"):
        ClipScore({})


@pytest.mark.integration
@pytest.mark.parametrize("fault", ["pickled", "damaged"])
def test_pickled_or_damaged_weights_are_refused(weights: Path, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "faulty"
    shutil.copytree(weights, folder)
    file = folder / "open_clip_model.safetensors"
    if fault == "pickled":
        file.rename(folder / "open_clip_pytorch_model.bin")
    else:
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"faulty: cannot be loaded \(.*\); give a folder"):
        ClipScore({}, folder)
