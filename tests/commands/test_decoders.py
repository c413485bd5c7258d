"""A transformer, and an LSTM with several heads, through the commands from training to a page."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from captioning import load
from captioning.commands import main, options
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.maps import MAPS, head_names
from tests.conftest import Trained

Capture = pytest.CaptureFixture[str]

DECODERS = {
    "transformer": (
        "captioning.models.TransformerDecoder",
        *("width=8", "layers=2", "heads=2", "inner_width=16"),
    ),
    "heads": (
        "captioning.models.LSTMDecoder",
        *("attention=captioning.models.MultiHeadAttention", "attention.init_args.heads=2"),
    ),
}


@pytest.fixture(
    scope="module",
    params=["transformer", pytest.param("heads", marks=pytest.mark.integration)],
)
def model(request: pytest.FixtureRequest, trained: Trained) -> Path:
    """A checkpoint that `captioning train` wrote; not to be changed by a test."""
    class_path, *given = DECODERS[request.param]
    options = [f"--model.decoder.init_args.{argument}" for argument in given]
    return trained(request.param, "--model.decoder", class_path, *options) / "best.ckpt"


@pytest.fixture
def photos(shapes_records: list[Record]) -> list[str]:
    return [str(record.image) for record in shapes_records]


def told(arguments: list[str], capsys: Capture) -> list[str]:
    """The lines that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--device", "cpu"]) == 0
    return capsys.readouterr().out.splitlines()


def test_it_captions_alone_and_together_with_the_papers_lstm(
    model: Path, checkpoint: Path, photos: list[str], capsys: Capture
) -> None:
    for models in ([model], [model, checkpoint]):
        given = [option for path in models for option in ("--model", str(path))]
        lines = told(["caption", *photos, "--json", *given], capsys)
        expected = load([str(path) for path in models])(photos)
        assert [json.loads(line)["caption"] for line in lines] == [c.text for c in expected]


def test_every_head_is_grounded(
    model: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    records = Coco(shapes_data).read("train")
    [(category, _)] = Counter(t.name for r in records for t in r.objects).most_common(1)
    words = load(model).vocabulary.words  # whatever the tiny model says, it says of this category
    (tmp_path / "words.json").write_text(json.dumps({"categories": {category: list(words)}}))
    ground = ["ground", "--model", str(model), "--data", str(shapes_data), "--split", "train"]
    ground += ["--words", str(tmp_path / "words.json"), "--limit", "2"]
    printed = told([*ground, "--out", str(tmp_path / "all"), "--map", "heads"], capsys)
    heads = head_names(load(model).model.decoder)
    scores = json.loads((tmp_path / "all/maps.json").read_text())
    assert tuple(scores) == ("attention", *heads)
    assert len(heads) in (2, 6)
    assert all(any(line.startswith(f"{head} ") for line in printed) for head in heads)
    told([*ground, "--out", str(tmp_path / "one"), "--map", heads[1]], capsys)
    alone = json.loads((tmp_path / "one/grounding.json").read_text())["all"]
    assert alone["mass in box"] == scores[heads[1]]["all"]["mass in box"]
    assert alone["mass in box"] != scores[heads[0]]["all"]["mass in box"]


def test_all_maps_are_those_that_the_model_has(
    model: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    given = ["ground", "--model", str(model), "--data", str(shapes_data), "--out", str(tmp_path)]
    lines = told([*given, "--references", "--limit", "1", "--map", "all"], capsys)
    found = json.loads((tmp_path / "maps.json").read_text())
    has_evidence = "evidence" in found
    assert has_evidence == ("LSTM" in type(load(model).model.decoder).__name__)
    assert len(found) == len(MAPS) - 2 * (not has_evidence)
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in found)
    assert set(MAPS) == set(re.findall(r"[a-z][a-z-]+", options.MAPS)) - {"or"}
