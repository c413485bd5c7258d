import pydoc
from pathlib import Path

import pytest
import yaml

import captioning
from captioning.captioner import Caption, Captioner, load


def test_the_public_names_are_at_hand_in_the_package() -> None:
    assert (captioning.load, captioning.Caption, captioning.Captioner) == (load, Caption, Captioner)
    assert {"load", "Caption", "Captioner", "__version__"} < set(dir(captioning))


def test_the_help_of_the_package_has_its_classes_and_its_version() -> None:
    text = pydoc.plain(pydoc.render_doc(captioning))
    assert "class Caption(" in text
    assert "class Captioner(" in text
    assert captioning.__version__ in text


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        assert captioning.unload


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(captioning.__file__).parent / "py.typed").is_file()


def test_the_citation_names_the_software_and_the_paper() -> None:
    root = Path(__file__).parents[1]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert captioning.__version__ == citation["version"]
    assert citation["authors"][0]["name"] in (root / "LICENSE").read_text()
    [paper] = citation["references"]
    assert paper["title"].startswith("Show, Attend and Tell")
