"""Notebooks as they lie in the repository: executed, small and without traces of a machine."""

import json
import re

import pytest

from tests.notebooks import FOLDER, code, committed, complaints, pictures

LARGEST = {"attention.ipynb": 1_200_000, "translation.ipynb": 500_000}  # bytes
FIGURE = re.compile(r"plt\.subplots\(|\.figure\(|draw_mentions\(")

each_notebook = pytest.mark.parametrize("name", LARGEST)


def test_all_notebooks_are_looked_at() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(LARGEST)


@each_notebook
def test_every_cell_has_run_once_in_order_without_complaints(name: str) -> None:
    notebook = committed(name)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert not complaints(notebook)


@each_notebook
def test_every_figure_is_shown(name: str) -> None:
    counts = [len(FIGURE.findall(cell.source)) for cell in code(committed(name))]
    assert [len(pictures(cell)) for cell in code(committed(name))] == counts
    assert sum(counts) > 1


@each_notebook
def test_it_is_small(name: str) -> None:
    assert (FOLDER / name).stat().st_size < LARGEST[name]


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
