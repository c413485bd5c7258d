import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import FEATURES, Calibration
from captioning.captioner.onnx_graphs import write_onnx
from captioning.commands import main
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.maps.evidence_map import evidence, evidence_shares, has_evidence
from captioning.models import Adapter, CNNEncoder, Model
from captioning.search import Greedy
from tests.conftest import quick_ones, unchecked
from tests.fixtures import DECODERS, decided

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture(autouse=True)
def untyped() -> Iterator[None]:
    with unchecked():
        yield


EXAMPLE = Path(__file__).parents[2] / "examples" / "caption_with_onnx.py"


@pytest.fixture(scope="module")
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


def graphs_in(folder: Path, example: SimpleNamespace) -> list[Any]:
    names = ("encoder", "remember", "step")
    return [example.InferenceSession(folder / f"{name}.onnx") for name in names]


def same_captions(
    captioner: Captioner, photos: list[Path], folder: Path, example: SimpleNamespace
) -> list[str]:
    """The example's captions and confidences are the package's, by greedy and by beam search."""
    export(captioner, folder, onnx=True)
    graphs = graphs_in(folder, example)
    about = json.loads((folder / "captioner.json").read_text())
    beam = captioner.search
    for search, width in ((beam.replace(Greedy), 1), (beam, beam.config["width"])):
        expected = captioner(photos, search)
        found = [example.caption(graphs, about, photo, width) for photo in photos]
        texts, confidences = zip(*found, strict=True)
        assert any(confidences) == captioner.has_confidence(search)
        assert [*texts] == [caption.text for caption in expected]
        for sure, caption in zip(confidences, expected, strict=True):
            assert sure == (caption.confidence and pytest.approx(caption.confidence, abs=1e-4))
    return [*texts]


def test_the_example_has_few_lines_of_its_own() -> None:
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 120
    assert "torch" not in text.replace("PyTorch", "")
    assert "captioning." not in text


@pytest.mark.parametrize("name", quick_ones(DECODERS, lambda name: name != "dot product"))
def test_graphs_give_every_decoders_numbers_for_any_batch(
    name: str, vocabulary: Vocabulary, tmp_path: Path, example: SimpleNamespace
) -> None:
    torch.manual_seed(1)
    encoder = CNNEncoder("small", weights=None)
    adapter = Adapter(encoder.annotation_dim, projection_dim=5, normalise=True)
    decoder = decided(DECODERS[name](5, len(vocabulary))).float()
    model = Model(encoder, adapter, decoder).eval()
    write_onnx(Captioner(model, vocabulary, Preprocessing(32)), tmp_path)
    encoder_graph, remember, step_graph = graphs_in(tmp_path, example)
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        annotations = model.encode(images)
        memory = model.remember(annotations)
        state = decoder.start(memory, 4)
        found = example.run(encoder_graph, {"images": images.numpy()})
        np.testing.assert_allclose(found["annotations"], annotations, atol=1e-5)
        found = example.run(remember, found)
        memories = {key: value for key, value in found.items() if key.startswith("memory.")}
        states = {f"state.{key}": found[f"state.{key}"].repeat(4, axis=1) for key in state}
        for _ in range(3):
            tokens = torch.randint(4, len(vocabulary), (3, 4))
            step = decoder.step(tokens, state, memory)
            state = step.state
            found = example.run(step_graph, {"tokens": tokens.numpy(), **memories, **states})
            logits = step.logits.clone()
            logits[..., [0, 1, 3]] = -torch.inf
            np.testing.assert_allclose(found["log_probs"], logits.log_softmax(-1), atol=1e-4)
            np.testing.assert_allclose(found["weights"], step.weights, atol=1e-5)
            if has_evidence(decoder):
                of_tokens = evidence(
                    decoder, decoder.output_context(memory.annotations), tokens[..., None]
                )
                expected = evidence_shares(of_tokens, encoder.grid(32, 32)).squeeze(2)
                np.testing.assert_allclose(found["evidence"], expected, atol=1e-5)
            states = {f"state.{key}": found[f"next.{key}"] for key in state}
            for key, value in state.items():
                np.testing.assert_allclose(states[f"state.{key}"], value, atol=1e-4)


def test_the_example_says_the_same_of_drawn_scenes(
    shapes_records: list[Record], tmp_path: Path, example: SimpleNamespace
) -> None:
    captioner, photos = load("shapes"), [record.image for record in shapes_records]
    first = [caption.text for caption in captioner(photos)]
    same_captions(captioner, photos[:2], tmp_path, example)
    numbers = torch.linspace(-0.1, 0.1, captioner.model.decoder.annotation_dim + 1).tolist()
    of_features = dict.fromkeys(FEATURES, 0.1)
    captioner.search = captioner.search.replace(repeats=False)
    own = captioner.search.config
    calibration = Calibration(1.1, of_features, of_features, -1.0, photo=numbers, search=own)
    captioner.calibration = calibration
    spellings = {"circle": "Circle", "square": "SQUARE"}
    words = captioner.vocabulary.words
    captioner.vocabulary = Vocabulary(
        words, repeatable="a", spellings=spellings, immediate_repeats=[]
    )
    texts = same_captions(captioner, photos, tmp_path, example)
    assert [text.lower() for text in texts] != first
    assert {"Circle", "SQUARE"} <= set(" ".join(texts).split())


@pytest.mark.integration
def test_the_example_says_the_same_of_two_hundred_photos(
    shared_data: Path, tmp_path: Path, example: SimpleNamespace
) -> None:
    photos = sorted((shared_data / "coco-small").rglob("*.jpg"))[:200]
    assert len(photos) == 200
    same_captions(load(), photos, tmp_path, example)


def test_the_folder_has_a_card_with_its_licence_and_use(tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    options = ["--onnx", "--license", "cc-by-4.0"]
    assert main(["export", "shapes", str(folder), *options]) == 0
    metadata, card = (folder / "README.md").read_text().split("---\n", 2)[1:]
    assert {"license: cc-by-4.0", "library_name: onnx"} <= {*metadata.splitlines()}
    assert "python caption_with_onnx.py FOLDER photo.jpg" in card
    assert "captioning.load" not in card
    assert card.rstrip().endswith("cc-by-4.0")


@pytest.mark.integration
def test_the_example_says_how_it_is_used_and_how_sure_it_is(
    shapes_records: list[Record], tmp_path: Path
) -> None:
    photo = shapes_records[0].image
    own = load("shapes").search.config
    zeros = dict.fromkeys(FEATURES, 0.0)
    calibration = Calibration(1.0, means=zeros, weights=zeros, bias=-1.0, search=own)
    export("shapes", tmp_path / "graphs", calibration=calibration, onnx=True)

    def example(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLE), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    asked = example("--help")
    assert asked.returncode == 0
    assert "captioning export MODEL FOLDER --onnx" in asked.stdout
    wrong = example(tmp_path, photo)
    assert wrong.returncode == 2
    assert "not a folder of" in wrong.stderr.splitlines()[-1]
    text = load("shapes")(photo).text
    told = example(tmp_path / "graphs", photo)
    assert told.stdout == f"0.27\t{photo}\t{text}\n"


@pytest.mark.parametrize("fit", ["crop", "squeeze"])
@pytest.mark.parametrize(
    ("size", "orientation"), [((1301, 901), 1), ((1000, 1300), 6), ((90, 70), 3)]
)
def test_the_example_sees_photos_as_the_model_does(
    fit: Any, size: tuple[int, int], orientation: int, tmp_path: Path, example: SimpleNamespace
) -> None:
    image = Image.effect_noise(size, 90).convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    image.save(tmp_path / "photo.jpg", exif=exif)
    seen = example.image_of(tmp_path / "photo.jpg", 64, fit)
    assert (Preprocessing(64, fit)(tmp_path / "photo.jpg").pixels.numpy() == seen[0]).all()
