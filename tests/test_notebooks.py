"""The notebooks: as they lie in the repository, and as they run from top to bottom."""

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "notebooks"
LARGEST = {
    "attention.ipynb": 1_200_000,
    "learning.ipynb": 500_000,
    "translation.ipynb": 500_000,
}  # bytes
EXERCISES = {"attention.ipynb": 4, "learning.ipynb": 3, "translation.ipynb": 1}
FIGURE = re.compile(r"plt\.subplots\(|\.figure\(|draw_mentions\(")
VARIES = {"mistakes", "heart"}  # cells whose words a processor may change
KINDS = ["additive", "dot product", "multi-head", "transformer"]

each_notebook = pytest.mark.parametrize("name", LARGEST)


def committed(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / name, as_version=nbformat.NO_CONVERT)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def answers(notebook: NotebookNode) -> list[str]:
    """The code that is folded below the exercises."""
    folded = r"<details><summary>Answer</summary>\n\n```python\n(.*?)\n```\n\n</details>"
    return re.findall(folded, "\n".join(cell.source for cell in notebook.cells), re.DOTALL)


def shown(cell: NotebookNode, kind: str) -> list[str]:
    """What a cell shows of a MIME type."""
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def pictures(cell: NotebookNode) -> list[str]:
    return shown(cell, "image/png") + shown(cell, "image/jpeg")


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def words(text: str) -> list[str]:
    """The words of a text, with zeros for its numbers, which differ between processors."""
    return re.sub(r"-?\d+(\.\d+)?", "0", text).split()


def complaints(notebook: NotebookNode) -> list[NotebookNode]:
    """Errors of cells, and what they wrote to stderr."""
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return [each for each in outputs if {"error", "stderr"} & {each.output_type, each.get("name")}]


def executed(name: str, jupyter: Path) -> NotebookNode:
    """A notebook after it has run from top to bottom, and the answers to its exercises after it."""
    from ipykernel.kernelspec import write_kernel_spec  # these take a second to import
    from nbclient import NotebookClient

    notebook = committed(name)
    length = len(notebook.cells)
    notebook.cells += map(nbformat.v4.new_code_cell, answers(notebook))
    write_kernel_spec(jupyter / "kernels" / "tests")  # this Python, whatever kernels a user has
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(jupyter))
        patch.setenv("IPYTHONDIR", str(jupyter / "ipython"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("MPLBACKEND", raising=False)  # the kernel's own is what draws into the page
        options: dict[str, Any] = {"record_timing": False, "coalesce_streams": True}
        resources = {"metadata": {"path": str(FOLDER)}}
        NotebookClient(
            notebook, kernel_name="tests", timeout=900, resources=resources, **options
        ).execute()
    del notebook.cells[length:]
    return notebook


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NotebookNode]:
    """The notebooks after they have run as a reader runs them."""
    return {name: executed(name, tmp_path_factory.mktemp("jupyter")) for name in LARGEST}


def test_all_notebooks_are_looked_at() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(LARGEST)


@each_notebook
def test_every_cell_has_run_and_shows_its_figures(name: str) -> None:
    cells = code(committed(name))
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert not complaints(committed(name))
    counts = [len(FIGURE.findall(cell.source)) for cell in cells]
    assert [len(pictures(cell)) for cell in cells] == counts
    assert sum(counts) > 1
    assert (FOLDER / name).stat().st_size < LARGEST[name]


@each_notebook
def test_exercises_have_answers_that_check_themselves(name: str) -> None:
    notebook = committed(name)
    asked = [cell for cell in notebook.cells if cell.source.startswith("### Exercise")]
    assert len(asked) == len(answers(notebook)) == EXERCISES[name]
    for answer in answers(notebook):
        assert "assert" in answer
        compile(answer, "answer", "exec")


@each_notebook
def test_it_names_no_folder_of_the_machine_that_ran_it(name: str) -> None:
    notebook = committed(name)
    for cell in code(notebook):
        assert set(cell.metadata) <= {"tags"}  # no times, for instance
        for output in cell.outputs:
            for kind in [kind for kind in output.get("data", {}) if kind.startswith("image/")]:
                del output.data[kind]
    found = re.findall(r"(?<![\w+/])/(?:home|root|tmp|usr|work|Users)/", json.dumps(notebook))
    assert found == []
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@pytest.mark.integration
@each_notebook
def test_every_cell_prints_what_is_committed(name: str, runs: dict[str, NotebookNode]) -> None:
    assert not complaints(runs[name])
    for found, before in zip(code(runs[name]), code(committed(name)), strict=True):
        if found.id not in VARIES:
            assert words(printed(found)) == words(printed(before)), found.id
        assert len(pictures(found)) == len(pictures(before)), found.id


@pytest.mark.integration
def test_attention_shows_a_page_and_grounds_words(runs: dict[str, NotebookNode]) -> None:
    cells = code(runs["attention.ipynb"])
    [view] = [view for cell in cells for view in shown(cell, "text/html")]
    assert view.startswith("<iframe")
    assert "data-attention-view" in view
    [grounding] = [cell for cell in cells if "ground(" in cell.source]
    assert re.search(r"^attention +0\.[1-9]", printed(grounding), re.MULTILINE)


@pytest.mark.integration
def test_dates_are_translated_by_looking_at_their_words(runs: dict[str, NotebookNode]) -> None:
    """The table of answers has, in per cent: exact, looks at its word, and by part."""
    [cell] = [cell for cell in code(runs["translation.ipynb"]) if cell.get("id") == "answers"]
    lines = printed(cell).splitlines()[1:]
    found = {
        line[:12].strip(): [float(number) for number in re.findall(r"([\d.]+)%", line)]
        for line in lines
    }
    assert list(found) == KINDS
    assert min(exact for exact, *_ in found.values()) >= 99
    assert found["additive"][1] >= 75
