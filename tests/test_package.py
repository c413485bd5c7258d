import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import captioning
from captioning.captioner import Captioner, load
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.models import CNNEncoder, LSTMDecoder

# What other commands need, and takes long to import.
NOT_FOR_CAPTIONS = {
    "captioning.metrics",
    "captioning.training",
    "captioning.viewing.overlay",
    "jsonargparse",
    "lightning_fabric",
    "matplotlib",
    "pandas",
    "pycocotools",
    "pytorch_lightning",
    "scipy",
    "wandb",
    "yaml",
}

# What torchvision brings along.
COMPILER = {"sympy", "torch._dynamo", "torch._inductor", "torchvision"}


def imported(script: str, *arguments: str | Path) -> set[str]:
    """The names of all modules that a script has imported in a process of its own."""
    script += "\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(printed.splitlines()[-1].split())


@pytest.fixture
def saved_captioner(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint of a captioner with random parameters and the backbone that a test names."""
    encoder = CNNEncoder(request.param, weights=None)
    decoder = LSTMDecoder(encoder.annotation_dim, 5, 4, 4, 4)
    captioner = Captioner(encoder, decoder, Vocabulary(["a"]), Preprocessing(64))
    state = {f"captioner.{name}": value for name, value in captioner.state_dict().items()}
    torch.save({"captioner": captioner.config, "state_dict": state}, tmp_path / "best.ckpt")
    return tmp_path / "best.ckpt"


def test_load_is_at_hand_in_the_package() -> None:
    assert captioning.load is load


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not imported("import captioning") & {"torch", "numpy", "matplotlib"}


@pytest.mark.parametrize(
    ("saved_captioner", "unwanted"),
    [("mobilenet_v2", NOT_FOR_CAPTIONS), ("small", NOT_FOR_CAPTIONS | COMPILER)],
    indirect=["saved_captioner"],
)
def test_captioning_a_photo_imports_only_what_it_needs(
    saved_captioner: Path, unwanted: set[str], shapes_records: list[Record]
) -> None:
    script = "import sys; from captioning.cli import main; assert main(sys.argv[1:]) == 0"
    arguments = ("caption", shapes_records[0].image, "--model", saved_captioner)
    assert not imported(script, *arguments) & unwanted


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        assert captioning.unload


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(captioning.__file__).parent / "py.typed").is_file()


def test_the_citation_names_the_software_and_the_paper() -> None:
    root = Path(__file__).parents[1]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    project = (root / "pyproject.toml").read_text()
    assert f'version = "{citation["version"]}"' in project
    assert citation["authors"][0]["name"] in (root / "LICENSE").read_text()
    [paper] = citation["references"]
    assert paper["title"].startswith("Show, Attend and Tell")
