"""The rows on the transformer: what is compared is the same model, and small sizes run."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import sizes
from benchmarks.program import main
from benchmarks.sizes import QUICK
from benchmarks.transformers import UncachedTransformer, transformer
from captioning.models import Decoder
from captioning.search import BeamSearch

CPU = torch.device("cpu")


def test_without_a_cache_it_is_the_same_model() -> None:
    size = QUICK[0]
    cached, uncached = transformer(size, CPU), transformer(size, CPU, UncachedTransformer)
    vectors = sizes.annotations(size)
    search = BeamSearch(4, max_length=6)
    found, others = (search(decoder, decoder.remember(vectors)) for decoder in (cached, uncached))
    assert found.tokens.equal(others.tokens)
    torch.testing.assert_close(found.scores, others.scores)
    tokens = sizes.tokens(size)[..., :-1]
    expected, _ = cached(vectors, tokens)
    stepped, _ = Decoder.teacher_forcing(uncached, uncached.remember(vectors), tokens)
    torch.testing.assert_close(stepped, expected, rtol=1e-4, atol=1e-4)


def test_its_rows_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "transformer-beam,transformer-step"
    file = tmp_path / "figures.json"
    assert main(["--quick", "--rounds", "1", "--rows", rows, "--json", str(file)]) == 0
    written = json.loads(file.read_text())["rows"]
    assert {row["implementation"] for row in written} == {
        *("ours", "the LSTM", "itself without a cache", "word 5")
    }
    assert all(row["figure"]["median"] > 0 for row in written)
    printed = capsys.readouterr().out
    assert all(f"| {name}, " in printed for name in {row["name"] for row in written})
