"""The pages that are made from parsers and classes: nothing that may be given is missing."""

import argparse
import re
from pathlib import Path

import pytest
import torch

from captioning.cli import train
from captioning.models import CNNEncoder
from captioning.training import ExponentialAverage
from docs._ext import configuration_keys, options
from tests.campaign.kinds.options import all_options
from tests.docs.pages import DOCS

COMMANDS = DOCS / "reference" / "commands.md"
KEYS = DOCS / "reference" / "configuration-keys.md"
API = DOCS / "reference" / "api"


def directives(page: Path, name: str) -> list[str]:
    """The arguments of a directive, in the order of the page."""
    return re.findall(rf"^```{{{name}}} (\S+)$", page.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def keys_page() -> str:
    """What is made of the page of keys."""
    groups = map(configuration_keys.keys_text, directives(KEYS, "configuration-keys"))
    classes = map(configuration_keys.classes_text, directives(KEYS, "class-keys"))
    return "\n".join([*groups, *classes])


def test_every_command_has_its_section_and_every_option_is_there(keys_page: str) -> None:
    commands = directives(COMMANDS, "options")
    every = all_options()
    assert len(every) > 200
    assert set(commands) == {option["command"] for option in every}
    for command in commands:
        assert f"\n## captioning {command}\n" in COMMANDS.read_text()
        told = options.options_text(command)
        for option in every:
            name = option["flag"] or option["metavar"] or option["dest"]
            if option["command"] != command or name.endswith(".help"):
                continue  # which the page of keys explains
            if "." in option["dest"]:
                assert f":::{{confval}} {option['dest']}\n" in keys_page, name
            else:
                assert re.search(rf"^:::{{option}} (.*, )?{name}\b", told, re.MULTILINE), name


def test_the_short_help_of_train_shows_options_that_a_training_takes() -> None:
    short = argparse.ArgumentParser()
    train.add_options(short)
    every = {option["flag"] for option in all_options() if option["command"] == "train"}
    own = {"--help", "--help-all", "--import", "--data.reader.init_args.root"}
    shown = {flag for action in short._actions for flag in action.option_strings if flag != "-h"}
    assert shown - own <= every


def test_every_key_has_a_type_and_what_it_means(keys_page: str) -> None:
    found = re.findall(
        r"^:::{confval} (\S+)\n:type: (.*)\n(?::default: .*\n)?\n(.*)$", keys_page, re.M
    )
    names = [name for name, _, _ in found]
    assert len(names) == len(set(names)) == keys_page.count(":::{confval}")
    assert set(configuration_keys.keys()) <= set(names)
    assert all(kind and meaning for _, kind, meaning in found)


def test_every_class_that_a_key_may_name_has_its_arguments(keys_page: str) -> None:
    fields = configuration_keys.class_fields()
    assert set(fields) == set(directives(KEYS, "class-keys")[:-1])
    for parent in fields.values():
        assert configuration_keys.classes(parent)
        for kind in configuration_keys.classes(parent):
            assert configuration_keys.class_path(kind) in keys_page
            for name in configuration_keys.arguments(kind):
                assert f":::{{confval}} {kind.__name__}.{name}\n" in keys_page
    assert set(configuration_keys.arguments(CNNEncoder)) > {"backbone", "weights", "grid"}
    assert set(configuration_keys.arguments(ExponentialAverage)) == {"decay", "keeps_start"}


def test_types_are_told_in_words_and_defaults_as_yaml_writes_them(keys_page: str) -> None:
    assert (
        ":::{confval} BeamSearch.width\n:type: whole number from 1 to 1000\n:default: `3`"
        in keys_page
    )
    assert ":::{confval} data.augment\n:type: true or false\n:default: `false`" in keys_page
    assert ":::{confval} model.initial\n:type: text or null\n:default: `null`" in keys_page
    assert ":::{confval} data.reader\n:type: Reader\n\n" in keys_page  # it must be given


def test_help_is_shown_as_it_is_written() -> None:
    assert options.plain("a *b* of\n  ``x_y`` and :func:`torch.no_grad`") == (
        r"a \*b\* of `x_y` and `torch.no_grad`"
    )


def test_every_package_that_exports_names_is_on_a_page_of_the_api() -> None:
    pages = "\n".join(page.read_text() for page in API.glob("*.md"))
    package = DOCS.parent / "captioning"
    exporting = [
        ".".join(file.parent.relative_to(package.parent).parts)
        for file in package.rglob("__init__.py")
        if "__all__" in file.read_text()
    ]
    assert len(exporting) > 8
    for name in exporting:
        if name != "captioning.cli":  # commands, not calls
            assert re.search(rf"automodule:: {re.escape(name)}\n", pages), name


def test_all_that_a_checkpoint_holds_is_among_the_file_formats(checkpoint: Path) -> None:
    page = (DOCS / "reference" / "file-formats.md").read_text()
    rows = " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    saved = torch.load(checkpoint, weights_only=True)
    assert {key for key in saved if f"`{key}`" not in rows} == set()
    assert {key for key in saved["captioner"] if f"`{key}`" not in page} == set()
