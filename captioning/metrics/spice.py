"""SPICE 1.0, computed by its authors' Java program, which pycocoevalcap contains.

Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016,
https://arxiv.org/abs/1607.08822.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from captioning.errors import InputError
from captioning.metrics.scores import Scores

NAME = "SPICE"
CORENLP = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
JAVA_OPTIONS = ["-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US", "-Xmx8G"]
LATEST = 14
"""The latest Java version that runs SPICE: it needs a JavaScript engine that Java 15 removed."""


class Spice:
    """Scores captions by SPICE, as the COCO evaluation calls it.

    Raises:
        InputError: Java, the program or its parser is missing, or Java is too new.
    """

    def __init__(self) -> None:
        self._jar = packaged_file(NAME, "spice/spice-1.0.jar")
        if not all((self._jar.parent / "lib" / name).is_file() for name in CORENLP):
            raise InputError(
                f"{NAME} needs Stanford CoreNLP 3.6.0, which pycocoevalcap downloads; "
                f"`python -m pycocoevalcap.spice.get_stanford_models`, or omit {NAME}"
            )
        home = os.environ.get("JAVA_HOME")
        java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
        version = None
        if java is not None:
            command = [java, "-version"]
            told = subprocess.run(command, capture_output=True, text=True, errors="replace")
            version = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
        if java is None or version is None or int(version[1]) > LATEST:
            has = f"Java {version[1]}" if version else "no Java that runs"
            raise InputError(
                f"{NAME} needs Java 8 to {LATEST}, but {home or 'the PATH'} has {has}; "
                f"set JAVA_HOME to such a Java, or omit {NAME}"
            )
        self._java = java

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> Scores:
        """SPICE of the words of captions; the corpus score is the mean over images."""
        images = [
            {"image_id": number, "test": " ".join(candidate), "refs": list(map(" ".join, written))}
            for number, (candidate, written) in enumerate(zip(candidates, references, strict=True))
        ]
        with tempfile.TemporaryDirectory() as folder:
            captions, scores = Path(folder) / "captions.json", Path(folder) / "scores.json"
            captions.write_text(json.dumps(images), encoding="utf-8")
            # Without -cache, which needs native code that not every machine can run.
            command = [self._java, *JAVA_OPTIONS, "-jar", str(self._jar), str(captions)]
            process = subprocess.run(
                [*command, "-out", str(scores), "-subset", "-silent"],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
            )
            if process.returncode or not scores.is_file():
                reason = process.stderr.strip().rpartition("\n")[2]  # where Java reports the error
                raise InputError(f"{NAME}'s Java program failed ({reason}); omit {NAME}")
            results = json.loads(scores.read_text(encoding="utf-8"))
        of_images = {result["image_id"]: result["scores"]["All"]["f"] for result in results}
        values = [of_images[number] for number in range(len(images))]
        return Scores.of(NAME, np.array(values, dtype=np.float64))


def packaged_file(metric: str, name: str) -> Path:
    """The path of a file of pycocoevalcap, which `metric` needs and which need not be importable.

    Raises:
        InputError: it is not installed.
    """
    package = find_spec("pycocoevalcap")
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise InputError(
        f"{metric} needs the package pycocoevalcap; `pip install pycocoevalcap`, or omit {metric}"
    )
