"""Signatures and links of the API pages."""

from captioning.captioner import Captioner
from captioning.models import Encoder
from captioning.models.decoder import Step
from captioning.search import BeamSearch
from docs._ext.api import signature, with_paths
from tests.docs.pages import DOCS


def test_a_configurable_class_shows_the_arguments_of_its_constructor() -> None:
    arguments, result = signature(BeamSearch) or ("", "")
    assert arguments.startswith("(width: int = 3, length_penalty: float = 1.0,")
    assert result == ""


def test_a_class_without_a_constructor_of_its_own_shows_no_arguments() -> None:
    assert signature(Encoder) == ("", "")


def test_other_objects_are_left_to_autodoc() -> None:
    for found in (Step, Captioner.stream, ValueError):
        assert signature(found) is None


def test_a_link_to_a_file_that_is_not_a_page_becomes_its_path() -> None:
    text = (
        "[one](../README.md#set-up), [two](../tests/boundary), [three](reading.md), [4](../no.md)"
    )
    assert with_paths(text, DOCS.parent) == (
        "`README.md`, `tests/boundary`, [three](reading.md), [4](../no.md)"
    )
