"""Captions with the user's words, and several captions of a photo."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import captioning
from captioning.commands import main
from captioning.search import BeamSearch, DiverseBeamSearch, Search
from captioning.shapes import picture, random_scene

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene with a red cross, an orange square and a yellow triangle."""
    path = tmp_path_factory.mktemp("scene") / "scene.png"
    Image.fromarray(picture(random_scene(np.random.default_rng(5)), 128)).save(path)
    return path


@pytest.fixture
def caption(photo: Path) -> list[str]:
    return ["caption", str(photo), "--model", "shapes", "--device", "cpu"]


def test_a_caption_begins_with_says_and_avoids_what_it_should(
    caption: list[str], capsys: Capture
) -> None:
    plain = "there is a large red cross to the left of a small orange square"
    assert main(caption) == 0
    assert capsys.readouterr().out.endswith(f"\t{plain}\n")
    words = ["--begin", "A large", "--avoid", "red", "--avoid", "left of"]
    said = ["--must-say", "yellow triangle", "--must-say", "square", "--avoid", "zebra"]
    assert main([*caption, *words, *said]) == 0
    found = capsys.readouterr().out.partition("\t")[2].rstrip()
    assert found.startswith("a large ")
    assert not {"red"} & set(found.split())
    assert "left of" not in found
    assert "yellow triangle" in found
    assert "square" in found.split()


@pytest.mark.parametrize(
    ("options", "kind", "changes"),
    [
        ("--captions 2", BeamSearch, {"width": 3}),
        ("--captions 5", BeamSearch, {"width": 5}),
        ("--captions 3 --diverse", DiverseBeamSearch, {"groups": 3}),
    ],
)
def test_every_output_has_all_captions_that_were_asked_for(
    options: str,
    kind: type[Search],
    changes: dict[str, int],
    caption: list[str],
    photo: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    shapes, count = captioning.load("shapes"), int(options.split()[1])
    best = shapes(photo, shapes.search.replace(kind, **changes), most=count)
    wanted = [each.text for each in (best, *best.others)]
    files = ["--txt-dir", str(tmp_path), "--csv", str(tmp_path / "all.csv")]
    assert main([*caption, *options.split(), "--json", *files]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["caption"] for line in printed] == wanted
    assert len(wanted) == count
    assert (tmp_path / "scene.txt").read_text().splitlines() == wanted
    with (tmp_path / "all.csv").open(newline="") as file:
        assert [row["caption"] for row in csv.DictReader(file)] == wanted
