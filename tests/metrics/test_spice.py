"""SPICE by a stand-in for its Java program."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from captioning.errors import InputError
from captioning.metrics.spice import CORENLP, Spice

JAVA = """#!{python}
import json, sys
if sys.argv[-1] == "-version":
    sys.exit('openjdk version "{version}" 2020-01-14')
out, given = sys.argv[sys.argv.index("-out") + 1], sys.argv[sys.argv.index("-out") - 1]
if not given.endswith(".json"):
    sys.exit("no input")
results = []
for image in json.load(open(given)):
    if "fail" in image["test"]:
        sys.exit("Error: Could not score\\njava.lang.OutOfMemoryError")
    f = len(set(image["test"].split()) & set(" ".join(image["refs"]).split()))
    results.append({{"image_id": image["image_id"], "scores": {{"All": {{"f": f}}}}}})
json.dump(results[::-1], open(out, "w"))
"""


@pytest.fixture
def spice_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that SPICE's own needs, empty, and no Java yet."""
    (tmp_path / "spice/lib").mkdir(parents=True)
    for name in ("spice-1.0.jar", *(f"lib/{name}" for name in CORENLP)):
        (tmp_path / "spice" / name).touch()
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("captioning.metrics.spice.find_spec", lambda name: package)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def stand_in(folder: Path, version: str) -> None:
    """A program in Java's place that counts the words that captions share with references."""
    (folder / "bin").mkdir()
    (folder / "bin/java").write_text(JAVA.format(python=sys.executable, version=version))
    (folder / "bin/java").chmod(0o755)


@pytest.mark.parametrize("version", ["1.8.0_312", "14.0.2"])
def test_spice_asks_its_program_and_puts_its_answers_in_order(
    spice_files: Path, version: str
) -> None:
    stand_in(spice_files, version)
    scores = Spice()([["a", "dog"], ["é"]], [[["a", "cat"], ["one", "dog"]], [["e"]]])
    assert scores.images["SPICE"].tolist() == [2, 0]
    assert scores.corpus == {"SPICE": 1}


def test_a_spice_that_fails_is_one_line(spice_files: Path) -> None:
    stand_in(spice_files, "11.0.2")
    with pytest.raises(InputError, match=r"failed \(java.lang.OutOfMemoryError\); omit SPICE"):
        Spice()([["fail"]], [[["a"]]])


@pytest.mark.parametrize(
    ("version", "found"), [("17.0.15", "Java 17"), (None, "no Java that runs")]
)
def test_a_missing_or_too_new_java_is_named(
    spice_files: Path, version: str | None, found: str
) -> None:
    if version:
        stand_in(spice_files, version)
    with pytest.raises(InputError, match=f"SPICE needs Java 8 to 14, but .* has {found}"):
        Spice()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.metrics.spice.find_spec", lambda name: None)
    with pytest.raises(InputError, match="SPICE needs the package pycocoevalcap"):
        Spice()
