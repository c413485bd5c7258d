"""METEOR by its real program where there is Java; SPICE by a stand-in for its own."""

import gc
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pycocoevalcap.meteor import meteor as coco

from captioning.errors import InputError
from captioning.metrics.java import java
from captioning.metrics.meteor_java import JavaScores, MeteorJava
from captioning.metrics.spice import CORENLP, Spice

CANDIDATES = [
    "a dog is running in the grass",
    "two kids sit on a bench",
    "",
    "un café sur la plage 🐕",
    "a man holds a phone",
]
REFERENCES = [
    ["a dog runs on the grass", "a brown dog is running"],
    ["two children are sitting on a bench", "kids on a seat", "people"],
    ["a cat"],
    ["le café de la plage", "a café by the beach 🐕"],
    ["a person talks on a telephone"],
]


def words(captions: list[str]) -> list[list[str]]:
    return [caption.split() for caption in captions]


@pytest.fixture(scope="module")
def needs_java() -> None:
    try:
        java("METEOR")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def meteor(needs_java: None) -> MeteorJava:
    """The program, started on a machine whose numbers have decimal commas."""
    meteor = MeteorJava()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
        assert meteor([["a"]], [[["a"]]]).corpus["METEOR-Java"] > 0
    return meteor


@pytest.fixture(scope="module")
def scores(meteor: MeteorJava) -> JavaScores:
    return meteor(words(CANDIDATES), [words(written) for written in REFERENCES])


def test_meteor_is_that_of_the_coco_evaluation(scores: JavaScores) -> None:
    program = coco.Meteor()
    try:
        with program.meteor_p:
            theirs, of_images = program.compute_score(
                dict(enumerate(REFERENCES)),
                {number: [text] for number, text in enumerate(CANDIDATES)},
            )
    finally:
        program.lock = threading.Lock()  # where it failed, its end would wait for this forever
    assert scores.corpus["METEOR-Java"] == pytest.approx(theirs, rel=1e-12)
    np.testing.assert_allclose(scores.images["METEOR-Java"], of_images, rtol=1e-12)
    assert 0 < theirs < 1


def test_the_meteor_of_resampled_corpora_is_that_of_their_captions(
    meteor: MeteorJava, scores: JavaScores
) -> None:
    counts = np.array([[1, 1, 1, 1, 1], [0, 3, 0, 0, 0], [2, 0, 0, 1, 0]])
    written = [words(REFERENCES[number]) for number in (0, 0, 3)]
    drawn = meteor(words([CANDIDATES[number] for number in (0, 0, 3)]), written)
    assert scores.resampled(counts)["METEOR-Java"] == pytest.approx(
        [
            scores.corpus["METEOR-Java"],
            scores.images["METEOR-Java"][1],
            drawn.corpus["METEOR-Java"],
        ],
        rel=1e-12,
    )


def test_nothing_in_a_caption_is_taken_for_an_end_of_it(
    meteor: MeteorJava, scores: JavaScores
) -> None:
    candidate = ["a", "dog", "is|||", "running\n", "|||", "in", "the", "grass\r\nSCORE"]
    reference = [[*text.split(), "|||"] for text in REFERENCES[0]]
    [found] = meteor([[*candidate[:-1], "grass\r"]], [reference]).images["METEOR-Java"]
    assert found == pytest.approx(scores.images["METEOR-Java"][0])
    assert meteor([candidate], [reference]).corpus["METEOR-Java"] < found


def test_the_unknown_word_is_one_word_that_meteor_matches_with_nothing(meteor: MeteorJava) -> None:
    reference = [[["a", "<unk>", "dog"]]] * 2
    known, unknown = meteor([["a", "cow", "dog"], ["a", "<unk>", "dog"]], reference).images[
        "METEOR-Java"
    ]
    assert known == unknown


def test_a_java_that_fails_is_one_line(needs_java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xnonsense")
    with pytest.raises(
        InputError, match=r"^METEOR-Java's Java program failed .*; leave METEOR-Java out$"
    ):
        MeteorJava()([["a"]], [[["a"]]])


def test_the_program_ends_with_its_object(needs_java: None) -> None:
    meteor = MeteorJava()
    process = meteor._process
    assert process.poll() is None
    del meteor
    gc.collect()
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"PATH": ""}, "METEOR-Java needs Java, and there is no `java` on the PATH; install"),
        ({"JAVA_HOME": "/nowhere"}, r"there is no `java` in JAVA_HOME \(/nowhere\); install"),
    ],
)
def test_missing_java_is_named(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=expected):
        MeteorJava()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.metrics.java.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match="METEOR-Java needs pycocoevalcap, which brings its program"
    ):
        MeteorJava()


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
    monkeypatch.setattr("captioning.metrics.java.find_spec", lambda name: package)
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
    with pytest.raises(InputError, match=r"failed \(java.lang.OutOfMemoryError\); leave SPICE out"):
        Spice()([["fail"]], [[["a"]]])


def test_a_java_too_new_for_spice_is_named(spice_files: Path) -> None:
    stand_in(spice_files, "17.0.15")
    with pytest.raises(InputError, match=r"SPICE needs Java 8 to 14, and .*bin/java is Java 17"):
        Spice()


def test_a_parser_that_spice_lacks_is_named(spice_files: Path) -> None:
    (spice_files / "spice/lib" / CORENLP[1]).unlink()
    with pytest.raises(
        InputError, match=r"python -m pycocoevalcap\.spice\.get_stanford_models`, or"
    ):
        Spice()
