"""The attention notebook, run from top to bottom."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from nbformat import NotebookNode
from PIL import Image

import captioning
from captioning.captioner import Captioner, load
from captioning.configurable import build
from captioning.models import Decoder, DotProductAttention, Model
from tests.conftest import checkpoint_of
from tests.notebooks import code, committed, complaints, executed, pictures, printed, shown, words

NOTEBOOK = "attention.ipynb"
TEMPLE = Path(captioning.__file__).parent / "web/photos/temple.jpg"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The notebook after it has run as a reader runs it."""
    return executed(NOTEBOOK, {}, tmp_path_factory.mktemp("jupyter"))


def with_dot_product(checkpoint: Path, path: Path) -> Path:
    """A checkpoint with the encoder and words of another one, and an untrained decoder."""
    trained = load(checkpoint)
    torch.manual_seed(4)
    decoder = build(trained.model.decoder.config, Decoder, attention=DotProductAttention)
    captioner = Captioner(
        Model(trained.model.encoder, trained.model.adapter, decoder),
        trained.vocabulary,
        trained.preprocessing,
        trained.search.replace(min_length=3),  # an untrained decoder may say nothing
    )
    return checkpoint_of(captioner, path)


def test_it_opens_with_a_photo_and_what_the_model_says_of_it() -> None:
    first = next(cell for cell in code(committed(NOTEBOOK)) if cell.outputs)
    [caption] = captioning.load()([TEMPLE], maps=["attention"])
    assert printed(first).strip() == caption.text

    [picture] = pictures(first)
    drawn = io.BytesIO()
    caption.figure().savefig(drawn, bbox_inches="tight")
    expected = Image.open(drawn).convert("RGB").resize(picture.size)
    difference = np.asarray(picture, dtype=float) - np.asarray(expected, dtype=float)
    assert abs(difference).mean() < 4  # of 255; letters may lie a pixel apart


@pytest.mark.integration
def test_every_cell_prints_what_is_committed(run: NotebookNode) -> None:
    before = code(committed(NOTEBOOK))
    for cell, old in zip(code(run), before, strict=True):
        assert words(printed(cell)) == words(printed(old)), cell.id
        assert len(pictures(cell)) == len(pictures(old)), cell.id
    assert not complaints(run)


@pytest.mark.integration
def test_the_caption_shows_itself_as_an_interactive_view(run: NotebookNode) -> None:
    [view] = [view for cell in code(run) for view in shown(cell, "text/html")]
    assert view.startswith("<iframe")
    assert "data-attention-view" in view


@pytest.mark.integration
def test_grounding_has_a_line_for_all_words(run: NotebookNode) -> None:
    [grounding] = [cell for cell in code(run) if "ground(" in cell.source]
    assert re.search(r"^attention +0\.[1-9]", printed(grounding), re.MULTILINE)


@pytest.mark.integration
def test_it_takes_apart_other_models_and_photos(
    checkpoint: Path, shapes_data: Path, tmp_path: Path
) -> None:
    values = {
        "MODEL": str(with_dot_product(checkpoint, tmp_path / "dot_product.ckpt")),
        "PHOTO": str(next((shapes_data / "test").glob("*.jpg"))),
    }
    notebook = executed(NOTEBOOK, values, tmp_path)
    assert not complaints(notebook)
    [hand] = [cell for cell in code(notebook) if cell.get("id") == "hand"]
    assert printed(hand).startswith("DotProductAttention: ")
