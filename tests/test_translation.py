"""The notebook that translates dates: in a few steps, and as a reader runs it."""

import re

import pytest
from nbformat import NotebookNode

from tests.notebooks import code, committed, complaints, executed, printed, words

NOTEBOOK = "translation.ipynb"
KINDS = ["additive", "dot product", "multi-head", "transformer"]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The notebook after a training of a few steps."""
    values = {"STEPS": 40, "PAIRS": 500, "HELD_OUT": 50}
    return executed(NOTEBOOK, values, tmp_path_factory.mktemp("jupyter"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The notebook after it has run as a reader runs it."""
    return executed(NOTEBOOK, {}, tmp_path_factory.mktemp("jupyter"))


def cell(notebook: NotebookNode, name: str) -> NotebookNode:
    [found] = [cell for cell in code(notebook) if cell.get("id") == name]
    return found


def table(notebook: NotebookNode) -> dict[str, list[float]]:
    """What is told of each kind of attention, in per cent: exact, on its word, by part."""
    lines = printed(cell(notebook, "answers")).splitlines()[1:]
    return {
        line[:12].strip(): [float(number) for number in re.findall(r"([\d.]+)%", line)]
        for line in lines
    }


@pytest.mark.integration
def test_every_cell_runs_once_and_complains_of_nothing(short: NotebookNode) -> None:
    assert [each.execution_count for each in code(short)] == [*range(1, len(code(short)) + 1)]
    assert not complaints(short)


@pytest.mark.integration
def test_every_kind_of_attention_learns(short: NotebookNode) -> None:
    losses = re.findall(r"^(.{12}) loss ([\d.]+)$", printed(cell(short, "training")), re.M)
    assert [name.strip() for name, _ in losses] == KINDS
    assert all(float(loss) < 2 for _, loss in losses)  # of 2.4 for a guess among eleven
    assert list(table(short)) == KINDS


@pytest.mark.integration
def test_the_last_word_reaches_all_backward_states(
    short: NotebookNode,
) -> None:
    lines = re.findall(r"forward +([\d.]+) +backward +([\d.]+)", printed(cell(short, "encoder")))
    forward, backward = zip(*[map(float, line) for line in lines], strict=True)
    assert max(forward[:-1]) == 0 < forward[-1]
    assert min(backward) > 0


@pytest.mark.integration
def test_dates_are_translated_by_looking_at_the_true_words(
    whole: NotebookNode,
) -> None:
    found = table(whole)
    assert min(exact for exact, *_ in found.values()) >= 99
    assert found["additive"][1] >= 75


@pytest.mark.integration
def test_every_cell_prints_what_is_committed(whole: NotebookNode) -> None:
    for each, old in zip(code(whole), code(committed(NOTEBOOK)), strict=True):
        if each.id != "mistakes":  # a processor may make others
            assert words(printed(each)) == words(printed(old)), each.id
