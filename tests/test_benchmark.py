"""The rivals compute what this package computes; otherwise no figure of the benchmark counts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.layers import DecoderLayers
from benchmarks.ours import Ours, search
from benchmarks.peer import Found, PeerDecoder
from benchmarks.sizes import SIZES, annotations, tokens
from benchmarks.tasks import TASKS
from benchmarks.textbook import TextbookDecoder
from captioning.data.vocabulary import PAD

CPU, DOUBLE = torch.device("cpu"), torch.float64
ROOT = Path(__file__).parents[1]

CELL = {
    "weight_ih": ("word_gates.weight", "context_gates.weight"),
    "weight_hh": ("hidden_gates.weight",),
    "bias_ih": ("word_gates.bias",),
}
"""An LSTM cell's parameters, from ours."""


def named(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, by the names that the rivals' layers have."""
    values = {name.removeprefix("attention."): value for name, value in values.items()}
    gates = {name for parts in CELL.values() for name in parts}
    cell = {
        f"cell.{name}": torch.cat([values[part] for part in parts], dim=-1)
        for name, parts in CELL.items()
    }
    return {name: value for name, value in values.items() if name not in gates} | cell


def parameters(model: Ours) -> dict[str, nn.Parameter]:
    return {name: value for part in model.trained for name, value in part.named_parameters()}


def rival(kind: Any, size: str, model: Ours) -> Any:
    """A rival with the model's parameters."""
    other: DecoderLayers = kind(SIZES[size], dropout=0.0).double()
    values = named({name: value.detach() for name, value in parameters(model).items()})
    # An LSTMCell adds two biases where one is enough.
    other.load_state_dict(values | {"cell.bias_hh": torch.zeros_like(values["cell.bias_ih"])})
    return other


@pytest.fixture(params=["tiny", "tiny-16"])
def size(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def model(size: str) -> Ours:
    """With large random parameters, so that captions differ and end."""
    made = Ours(SIZES[size], dropout=0.0).to(CPU, DOUBLE)
    torch.manual_seed(1)
    for value in parameters(made).values():
        nn.init.normal_(value, std=0.5)
    return made


@pytest.mark.parametrize("kind", [PeerDecoder, TextbookDecoder])
def test_a_rival_has_our_loss_and_gradients(kind: type, size: str, model: Ours) -> None:
    vectors, captions = annotations(SIZES[size]).double(), tokens(SIZES[size])
    other = rival(kind, size, model)
    model.prepare_training()
    mine, its = model.loss(vectors, captions), other.loss(vectors, captions)
    torch.testing.assert_close(mine, its)
    mine.backward()
    its.backward()
    expected = named({n: p.grad for n, p in parameters(model).items() if p.grad is not None})
    found = {n: p.grad for n, p in other.named_parameters() if n != "cell.bias_hh"}
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("width", [1, 5])
def test_rivals_find_our_captions(size: str, model: Ours, width: int) -> None:
    vectors = annotations(SIZES[size]).double()
    peer, textbook = (rival(kind, size, model).eval() for kind in (PeerDecoder, TextbookDecoder))
    ours = search(model.captioner(SIZES[size], width, 12), vectors)
    its: Found = peer.captions(vectors, width, 12)
    assert torch.equal(its.tokens, ours.tokens)
    torch.testing.assert_close(its.scores, ours.scores)
    for caption, score, mine in zip(
        its.tokens.tolist(), its.scores, textbook.captions(vectors, width, 12), strict=True
    ):
        assert [[id for id in one if id != PAD] for one in caption] == [one for one, _ in mine]
        torch.testing.assert_close(score, score.new_tensor([found for _, found in mine]))


@pytest.mark.integration
def test_two_checkouts_and_the_rivals_take_turns(tmp_path: Path) -> None:
    given = ["--tasks", "training,greedy,beam,end-to-end,photos,latency,features,server,help,start"]
    given += ["--sizes", "tiny", "--limit", "2"]
    given += ["--rounds", "2", "--against", str(ROOT), "--json", str(tmp_path / "figures.json")]
    command = [sys.executable, str(ROOT / "scripts/benchmark.py"), *given]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert [row["task"] for row in rows] == given[1].split(",")
    assert len(printed.splitlines()) == 2 + len(rows)
    for row in rows:
        assert set(row["seconds"]) == {"ours", "before", *TASKS[row["task"]]}
        assert all(len(seconds) == 2 for seconds in row["seconds"].values())
