"""What every command has: help, its version, completion, and a remedy for a misspelt word."""

import subprocess
import sys
from pathlib import Path

import pytest

from captioning import __version__
from captioning.cli import main
from captioning.shelf import CONFIGS, config_names, config_path_of

Capture = pytest.CaptureFixture[str]


def printed(arguments: list[str], capsys: Capture) -> str:
    """What a command prints that ends as --help does."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert not end.value.code
    return capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert printed(["--version"], capsys) == f"captioning {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["captoin", "a.jpg"], "unknown command captoin; did you mean caption?"),
        (["qqqq"], "unknown command qqqq; see captioning --help"),
        (["caption", "a.jpg", "--oevrlay", "x"], "--oevrlay; did you mean --overlay?"),
        (["export", "--hlaf"], "unknown option --hlaf; did you mean --half?"),  # nor a model
        (["export", "-q"], "unknown option -q; see captioning export --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_misspelt_word_is_named_with_the_nearest_one(
    arguments: list[str], expected: str, capsys: Capture
) -> None:
    assert main(arguments) == 2
    assert expected in capsys.readouterr().err


def test_the_help_of_train_is_short_and_names_the_configurations(capsys: Capture) -> None:
    text = printed(["train", "--help"], capsys)
    assert len(text.splitlines()) < 60
    assert "--help-all" in text
    assert all(name in " ".join(text.split()) for name in config_names())


def test_the_help_of_train_needs_no_torch() -> None:
    code = (
        "import sys\nfrom captioning.cli import main\ntry: main(['train', '--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.splitlines()[-1] == "False"


def test_completion_knows_every_command_and_its_options(capsys: Capture) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    script = printed(["--print-completion", "bash"], capsys)
    for word in ("evaluate", "--overlay", "--trainer.max_epochs"):
        assert word in script


def test_completion_without_its_package_names_the_extra(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "pip install 'captioning[completion]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["flickr8k", "flickr8k.yaml", "configs/flickr8k.yaml"])
def test_a_configuration_is_found_by_name_in_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flickr8k").mkdir()  # a folder of photos, say
    assert config_path_of(name) == str(CONFIGS / "flickr8k.yaml")


def test_a_file_comes_before_a_configuration_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flickr8k").write_text("{}")
    assert config_path_of("flickr8k") == "flickr8k"
    assert config_path_of("more/flickr8k.yaml") == "more/flickr8k.yaml"
