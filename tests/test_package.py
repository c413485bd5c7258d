from pathlib import Path

import pytest
import yaml

import captioning
from captioning.captioner import load


def test_load_is_at_hand_in_the_package() -> None:
    assert captioning.load is load


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
