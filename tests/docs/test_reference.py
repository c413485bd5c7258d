"""The pages that are made from parsers and classes: nothing that may be given is missing."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from captioning.captioner import Captioner
from captioning.captioner.checkpoint import CONFIG_KEY
from captioning.commands import COMMANDS as COMMAND_TABLE
from captioning.commands.train import train_model
from captioning.models import CNNEncoder
from captioning.training import ExponentialAverage
from docs._ext import configuration_keys, options, reference
from docs._ext.api import MODULES, modules_text

DOCS = Path(__file__).parents[2] / "docs"

COMMANDS = DOCS / "reference" / "commands.md"
KEYS = DOCS / "reference" / "configuration-keys.md"
API = DOCS / "reference" / "api"
ROOMS = {file.parent.name for file in (DOCS.parent / "captioning").glob("*/__init__.py")}

LISTED_BY = ("cyclopts", "jsonargparse", "pytorch-lightning")
"""Packages whose words the lists have."""


@pytest.fixture(scope="module")
def keys_page() -> str:
    return KEYS.read_text()


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.stem)
def test_pages_have_their_lists_as_the_code_has_them(page: Path) -> None:
    constraints = (DOCS.parent / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", constraints, re.MULTILINE))
    if any(version(name) != pins[name] for name in LISTED_BY):
        pytest.skip("other versions say some things in other words")
    assert reference.renewed(page.read_text()) == page.read_text(), "python -m docs._ext.reference"


def test_every_command_has_its_section() -> None:
    page = COMMANDS.read_text()
    for command in COMMAND_TABLE:
        assert f"\n## captioning {command}\n" in f"\n{page}"
    assert "* `--overlay PATH`: Write a picture per photo" in page


def test_the_help_of_train_shows_options_that_a_training_takes() -> None:
    shown = set(re.findall(r"^    - `(--\S+?)[ `]", train_model.__doc__ or "", re.MULTILINE))
    every = set(options.lightning_parser()._option_string_actions)
    assert len(shown) > 15
    assert shown - {"--help-all", "--import", "--data.reader.init_args.root"} <= every


def test_every_key_has_a_type_and_what_it_means(keys_page: str) -> None:
    found = re.findall(r"^- `(\S+)` \((.*?)\): (.*)$", keys_page, re.MULTILINE)
    names = [name for name, _, _ in found]
    assert len(names) == len(re.findall(r"^- `\S+` \(", keys_page, re.MULTILINE))
    assert set(configuration_keys.keys()) <= set(names)
    assert all(kind and meaning for _, kind, meaning in found)


def test_every_class_that_a_key_may_name_has_its_arguments(keys_page: str) -> None:
    fields = configuration_keys.class_fields()
    assert set(fields) == set(re.findall(r"<!-- classes (\S+) -->", keys_page)[:-1])
    for parent in fields.values():
        assert configuration_keys.classes(parent)
        for kind in configuration_keys.classes(parent):
            _, _, entries = keys_page.partition(f"\n`{configuration_keys.class_path(kind)}`: ")
            of_class, _, _ = entries.partition("\n`")
            for name in configuration_keys.arguments(kind):
                assert f"\n- `{name}` (" in of_class
    assert set(configuration_keys.arguments(CNNEncoder)) > {"backbone", "weights", "grid"}
    assert set(configuration_keys.arguments(ExponentialAverage)) == {"decay", "keeps_start"}


def test_the_architecture_page_has_every_room() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == ROOMS


def test_every_room_is_on_a_page_of_the_api() -> None:
    pages = "\n".join(page.read_text() for page in API.glob("*.md"))
    named = {name for names in MODULES.findall(pages) for name in names.split()}
    rooms = {f"captioning.{room}" for room in ROOMS - {"commands"}}  # commands, not calls
    assert named == rooms | {"captioning"}
    assert ".. automodule:: captioning.metrics.cider\n" in modules_text("captioning.metrics")


def test_what_a_checkpoint_holds_of_a_captioner_is_documented(captioner: Captioner) -> None:
    page = (DOCS / "reference" / "file-formats.md").read_text()
    assert {key for key in (CONFIG_KEY, *captioner.config) if f"`{key}`" not in page} == set()
