"""Captions with the user's words, and several captions of a photo."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import captioning
from captioning.captioner import Captioner
from captioning.commands import main
from captioning.search import BeamSearch, DiverseBeamSearch
from captioning.shapes import picture, random_scene
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def shapes() -> Captioner:
    """The model of drawn scenes that comes with the package."""
    return captioning.load("shapes")


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene with a red cross, an orange square and a yellow triangle."""
    path = tmp_path_factory.mktemp("scene") / "scene.png"
    Image.fromarray(picture(random_scene(np.random.default_rng(5)), 128)).save(path)
    return path


@pytest.fixture
def caption(photo: Path) -> list[str]:
    return ["caption", str(photo), "--model", "shapes", "--device", "cpu"]


def lines(arguments: list[str], capsys: Capture) -> list[str]:
    """The captions that a command prints."""
    assert main(arguments) == 0
    return [line.partition("\t")[2] for line in capsys.readouterr().out.splitlines()]


def test_a_caption_begins_with_says_and_avoids_what_it_should(
    caption: list[str], capsys: Capture
) -> None:
    [plain] = lines(caption, capsys)
    assert plain == "there is a large red cross to the left of a small orange square"
    words = ["--begin", "A large", "--avoid", "red", "--avoid", "left of"]
    said = ["--must-say", "yellow triangle", "--must-say", "square", "--avoid", "zebra"]
    [found] = lines([*caption, *words, *said], capsys)
    assert found.startswith("a large ")
    assert not {"red"} & set(found.split())
    assert "left of" not in found
    assert "yellow triangle" in found
    assert "square" in found.split()


def test_probabilities_are_those_of_the_caption_when_read(shapes: Captioner, photo: Path) -> None:
    search = shapes.constrained(begin="there is", avoid=["red"], must_say=["blue circle"])
    found = shapes(photo, search)
    assert found.text.startswith("there is")
    assert "blue circle" in found.text
    read = shapes.read(photo, found.text)
    assert read.words == found.words
    assert read.probabilities == pytest.approx(found.probabilities, rel=1e-4)
    assert read.score == pytest.approx(found.score, rel=1e-4)
    assert min(found.probabilities) < 0.01


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--must-say", "bleu"], "'bleu': the model does not know 'bleu'; did you mean blue?"),
        (["--begin", "a zebra"], "the model does not know 'zebra'; use other words"),
        (
            ["--must-say", "blue square", "--avoid", "square"],
            "words that must be said have words to avoid",
        ),
        (["--must-say", "red cross", "--max-length", "1"], "what must be said takes 2 words"),
    ],
)
def test_words_that_cannot_be_said_are_one_line(
    caption: list[str], words: list[str], error: str, capsys: Capture
) -> None:
    assert error in refusal([*caption, *words], capsys)


def test_several_captions_are_the_best_of_a_wide_beam(
    caption: list[str], photo: Path, shapes: Captioner, capsys: Capture
) -> None:
    for count in (2, 5):
        search = shapes.search.replace(BeamSearch, width=max(count, 3))
        best = shapes(photo, search, most=count)
        wanted = [each.text for each in (best, *best.others)]
        assert lines([*caption, "--captions", str(count)], capsys) == wanted


def test_every_output_has_all_captions_that_were_asked_for(
    caption: list[str], photo: Path, tmp_path: Path, shapes: Captioner, capsys: Capture
) -> None:
    search = shapes.search.replace(DiverseBeamSearch, groups=3)
    best = shapes(photo, search, most=None)
    wanted = [each.text for each in (best, *best.others)]
    files = ["--txt-dir", str(tmp_path), "--csv", str(tmp_path / "all.csv")]
    assert main([*caption, "--captions", "3", "--diverse", "--json", *files]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["caption"] for line in printed] == wanted
    assert (tmp_path / "scene.txt").read_text().splitlines() == wanted
    with (tmp_path / "all.csv").open(newline="") as file:
        assert [row["caption"] for row in csv.DictReader(file)] == wanted
