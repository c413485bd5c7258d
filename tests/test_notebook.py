import re
from pathlib import Path

import nbformat
import pytest
import torch
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from captioning.captioner import load
from captioning.configurable import build
from captioning.models import DotProductAttention

REPOSITORY = Path(__file__).parents[1]
NOTEBOOK = REPOSITORY / "notebooks" / "attention.ipynb"


def committed() -> NotebookNode:
    """The notebook as it lies in the repository."""
    return nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook: NotebookNode) -> int:
    """The place of the cell that says what to run on."""
    [place] = [
        place
        for place, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", [])
    ]
    return place


def shown(cell: NotebookNode, kind: str) -> list[str]:
    """What a cell shows of a MIME type."""
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def dot_product(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that sees and knows words as `checkpoint` does, with the other kind of attention."""
    captioner = load(checkpoint)
    torch.manual_seed(4)
    captioner.decoder = build(
        captioner.decoder.config, attention=DotProductAttention, query_with_word=True
    )
    # A decoder that has learnt nothing may have nothing to say.
    captioner.search = captioner.search.replace(min_length=3)
    state = {f"captioner.{name}": value for name, value in captioner.state_dict().items()}
    path = tmp_path_factory.mktemp("dot_product") / "random.ckpt"
    torch.save({"captioner": captioner.config, "state_dict": state}, path)
    return path


@pytest.fixture(scope="module")
def executed(
    checkpoint: Path,
    dot_product: Path,
    shapes_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> NotebookNode:
    """The notebook after it has run from top to bottom on two tiny models and four scenes."""
    notebook = committed()
    values = {
        "CHECKPOINT": str(dot_product),
        "OTHER_CHECKPOINT": str(checkpoint),
        "DATA": str(shapes_data),
    }
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    notebook.cells.insert(parameters(notebook) + 1, new_code_cell("\n".join(lines)))
    jupyter = tmp_path_factory.mktemp("jupyter")
    write_kernel_spec(jupyter / "kernels" / "tests")  # this Python, whatever kernels a user has
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(jupyter))
        patch.setenv("IPYTHONDIR", str(jupyter / "ipython"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("MPLBACKEND", raising=False)  # the kernel's own is what draws into the page
        NotebookClient(
            notebook,
            kernel_name="tests",
            timeout=300,  # of a cell, should the machine be busy
            resources={"metadata": {"path": str(NOTEBOOK.parent)}},
        ).execute()
    return notebook


def test_the_notebook_is_committed_without_outputs() -> None:
    for cell in code(committed()):
        assert cell.outputs == []
        assert cell.execution_count is None
        assert "execution" not in cell.metadata


def test_by_default_the_notebook_shows_what_quickstart_leaves() -> None:
    quickstart = (REPOSITORY / "scripts" / "quickstart").read_text()
    notebook = committed()
    defaults = notebook.cells[parameters(notebook)].source
    [run] = re.findall(r"^run=(.+)$", quickstart, re.MULTILINE)
    [data] = re.findall(r"^captioning shapes (.+)$", quickstart, re.MULTILINE)
    assert f'CHECKPOINT = "{run}/best.ckpt"' in defaults
    assert f'DATA = "{data}"' in defaults


def test_every_cell_runs_once_and_complains_of_nothing(executed: NotebookNode) -> None:
    assert [cell.execution_count for cell in code(executed)] == [*range(1, len(code(executed)) + 1)]
    assert not [
        output
        for cell in code(executed)
        for output in cell.outputs
        if output.get("name") == "stderr"
    ]


def test_the_caption_shows_itself_as_an_interactive_view(executed: NotebookNode) -> None:
    [view] = [view for cell in code(executed) for view in shown(cell, "text/html")]
    assert view.startswith("<iframe")
    assert "data-attention-view" in view


def test_every_figure_is_shown(executed: NotebookNode) -> None:
    for cell in code(executed):
        figures = len(re.findall(r"plt\.subplots\(|overlay\.draw\(|draw_looks\(", cell.source))
        assert len(shown(cell, "image/png")) == figures, cell.id


def test_both_kinds_of_attention_are_compared(executed: NotebookNode) -> None:
    [comparison] = [cell for cell in code(executed) if "OTHER_CHECKPOINT)" in cell.source]
    lines = printed(comparison).splitlines()
    assert [line.split()[0] for line in lines] == ["DotProduct", "Additive"]


def test_grounding_has_a_line_for_all_words(executed: NotebookNode) -> None:
    [grounding] = [cell for cell in code(executed) if "ground(" in cell.source]
    assert re.search(r"^all +[1-9]", printed(grounding), re.MULTILINE)
