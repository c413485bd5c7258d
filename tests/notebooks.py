"""Notebooks as they lie in the repository, and after they have run."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from PIL import Image

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "notebooks"


def committed(name: str) -> NotebookNode:
    """A notebook as it lies in the repository."""
    return nbformat.read(FOLDER / name, as_version=nbformat.NO_CONVERT)


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


def executed(name: str, values: dict[str, Any], jupyter: Path) -> NotebookNode:
    """A notebook after it has run from top to bottom, with other parameters.

    Args:
        name: of its file.
        values: of the parameters.
        jupyter: an empty folder, for the kernel's files.
    """
    notebook = committed(name)
    if values:
        lines = [f"{parameter} = {value!r}" for parameter, value in values.items()]
        notebook.cells.insert(parameters(notebook) + 1, new_code_cell("\n".join(lines)))
    write_kernel_spec(jupyter / "kernels" / "tests")  # this Python, whatever kernels a user has
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(jupyter))
        patch.setenv("IPYTHONDIR", str(jupyter / "ipython"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("MPLBACKEND", raising=False)  # the kernel's own is what draws into the page
        NotebookClient(
            notebook,
            kernel_name="tests",
            timeout=900,  # of a cell, should the machine be busy
            resources={"metadata": {"path": str(FOLDER)}},
            record_timing=False,
            coalesce_streams=True,
        ).execute()
    return notebook


def shown(cell: NotebookNode, kind: str) -> list[str]:
    """What a cell shows of a MIME type."""
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def pictures(cell: NotebookNode) -> list[Image.Image]:
    """The pictures that a cell shows."""
    found = shown(cell, "image/png") + shown(cell, "image/jpeg")
    return [Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB") for data in found]


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def words(text: str) -> list[str]:
    """The words of a text, with zeros for its numbers, which differ between processors."""
    return re.sub(r"-?\d+(\.\d+)?", "0", text).split()


def complaints(notebook: NotebookNode) -> list[NotebookNode]:
    """Errors of cells, and what they wrote to stderr."""
    return [
        output
        for cell in code(notebook)
        for output in cell.outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
