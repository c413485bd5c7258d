"""The attention notebook, run from top to bottom."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from nbformat import NotebookNode

from captioning.captioner import Captioner, load
from captioning.configurable import build
from captioning.models import (
    Attention,
    DotProductAttention,
    HardAttention,
    Model,
    MultiHeadAttention,
)
from tests.notebooks import (
    REPOSITORY,
    code,
    committed,
    complaints,
    executed,
    parameters,
    printed,
    shown,
)

NOTEBOOK = "attention.ipynb"


def untrained(checkpoint: Path, path: Path, attention: Callable[..., Attention]) -> Path:
    """A checkpoint with the encoder and words of another one, and a new kind of attention."""
    trained = load(checkpoint)
    torch.manual_seed(4)
    decoder = build(trained.model.decoder.config, attention=attention, query_with_word=True)
    captioner = Captioner(
        Model(trained.model.encoder, trained.model.adapter, decoder),
        trained.vocabulary,
        trained.preprocessing,
        trained.search.replace(min_length=3),  # an untrained decoder may say nothing
    )
    state = {f"model.{name}": value for name, value in captioner.model.state_dict().items()}
    torch.save({"captioner": captioner.config, "state_dict": state}, path)
    return path


@pytest.fixture(scope="module")
def run(
    checkpoint: Path, shapes_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> NotebookNode:
    """The notebook after it has run on four tiny models and four scenes."""
    models = tmp_path_factory.mktemp("models")
    dot_product = untrained(checkpoint, models / "dot_product.ckpt", DotProductAttention)
    others = [
        checkpoint,
        untrained(checkpoint, models / "hard.ckpt", HardAttention),
        untrained(checkpoint, models / "heads.ckpt", partial(MultiHeadAttention, heads=2)),
        models / "that-nobody-has-trained.ckpt",
    ]
    values = {
        "CHECKPOINT": str(dot_product),
        "OTHER_CHECKPOINTS": list(map(str, others)),
        "DATA": str(shapes_data),
    }
    return executed(NOTEBOOK, values, tmp_path_factory.mktemp("jupyter"))


def test_the_notebook_is_committed_without_outputs() -> None:
    for cell in code(committed(NOTEBOOK)):
        assert cell.outputs == []
        assert cell.execution_count is None
        assert "execution" not in cell.metadata


def test_by_default_the_notebook_shows_what_quickstart_leaves() -> None:
    quickstart = (REPOSITORY / "scripts" / "quickstart").read_text()
    notebook = committed(NOTEBOOK)
    defaults = notebook.cells[parameters(notebook)].source
    [run] = re.findall(r"^run=(.+)$", quickstart, re.MULTILINE)
    [data] = re.findall(r"^captioning shapes (\S+)", quickstart, re.MULTILINE)
    assert f'CHECKPOINT = "{run}/best.ckpt"' in defaults
    assert f'DATA = "{data}"' in defaults


@pytest.mark.integration
def test_every_cell_runs_once_and_complains_of_nothing(run: NotebookNode) -> None:
    assert [cell.execution_count for cell in code(run)] == [*range(1, len(code(run)) + 1)]
    assert not complaints(run)


@pytest.mark.integration
def test_the_caption_shows_itself_as_an_interactive_view(run: NotebookNode) -> None:
    [view] = [view for cell in code(run) for view in shown(cell, "text/html")]
    assert view.startswith("<iframe")
    assert "data-attention-view" in view


@pytest.mark.integration
def test_every_figure_is_shown(run: NotebookNode) -> None:
    for cell in code(run):
        figures = len(re.findall(r"plt\.subplots\(|overlay\.draw\(|draw_looks\(", cell.source))
        assert len(shown(cell, "image/png")) == figures, cell.id


@pytest.mark.integration
def test_all_kinds_of_attention_are_compared(run: NotebookNode) -> None:
    [comparison] = [cell for cell in code(run) if "in OTHER_CHECKPOINTS" in cell.source]
    lines = printed(comparison).splitlines()
    kinds = ["DotProduct", "Additive", "Hard", "MultiHead"]
    assert [line.split()[0] for line in lines] == kinds


@pytest.mark.integration
def test_grounding_has_a_line_for_all_words(run: NotebookNode) -> None:
    [grounding] = [cell for cell in code(run) if "ground(" in cell.source]
    assert re.search(r"^all +[1-9]", printed(grounding), re.MULTILINE)
