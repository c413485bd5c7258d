import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import captioning
from captioning.captioner import Caption, Captioner, load

ROOT = Path(__file__).parents[1]


def test_the_public_names_are_at_hand_in_the_package() -> None:
    assert (captioning.load, captioning.Caption, captioning.Captioner) == (load, Caption, Captioner)
    assert {"load", "Caption", "Captioner", "evaluate", "__version__"} < set(dir(captioning))
    text = pydoc.plain(pydoc.render_doc(captioning))
    assert "class Caption(" in text
    assert captioning.__version__ in text
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        assert captioning.unload


def test_citation_and_changelog_are_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert captioning.__version__ == citation["version"]
    assert citation["authors"][0]["name"] in (ROOT / "LICENSE").read_text()
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first
    assert first[1] in ("Next", f"{captioning.__version__} ({citation['date-released']})")


def test_every_file_of_the_package_is_part_of_wheels() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    elsewhere: dict[str, str] = setup["package-dir"]
    folders = {
        package: ROOT / elsewhere.get(package, package.replace(".", "/"))
        for package in setup["packages"]
    }
    code = {
        file.parent for top in ("captioning", "configs") for file in ROOT.glob(f"{top}/**/*.py")
    }
    assert set(folders.values()) == code
    packed = {
        file
        for package, patterns in setup["package-data"].items()
        for pattern in patterns
        for file in folders[package].glob(pattern)
    }
    files = {
        file
        for top in ("captioning", "configs")
        for file in (ROOT / top).rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc") and file.name != ".DS_Store"
    }
    assert files <= packed


def test_continuous_integration_runs_the_pythons_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == named
    assert jobs["oldest"]["strategy"]["matrix"]["python"] == named[:1]
    assert project["requires-python"] == f">={named[0]}"


@pytest.mark.integration
def test_types_hold_with_what_python_has_on_windows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--platform", "win32", "--cache-dir", str(tmp_path)]
    command.append("captioning")  # tests use what POSIX has
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
