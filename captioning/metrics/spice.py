"""SPICE 1.0, by its authors' own program.

Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016,
https://arxiv.org/abs/1607.08822.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from captioning.errors import InputError
from captioning.metrics.java import SETTINGS, java, java_version, last_line, program
from captioning.metrics.scores import Scores

NAME = "SPICE"
CORENLP = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
LATEST = 14


class Spice:
    """Scores captions by SPICE, as the COCO evaluation calls it.

    Raises:
        InputError: Java, the program or the parser that it needs is not there, or Java is too new.
    """

    def __init__(self) -> None:
        self._jar = program(NAME, "spice/spice-1.0.jar")
        if not all((self._jar.parent / "lib" / name).is_file() for name in CORENLP):
            raise InputError(
                f"{NAME} needs Stanford CoreNLP 3.6.0, which pycocoevalcap downloads; "
                f"`python -m pycocoevalcap.spice.get_stanford_models`, or leave {NAME} out"
            )
        version = java_version(NAME)
        if version > LATEST:  # it writes results by a JavaScript engine that Java 15 took out
            raise InputError(
                f"{NAME} needs Java 8 to {LATEST}, and {java(NAME)} is Java {version}; "
                f"set JAVA_HOME to an older one, or leave {NAME} out"
            )

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> Scores:
        """SPICE of captions; that of the corpus is the mean over images.

        Args:
            candidates: the words of one caption per image.
            references: for each image the words of its references.

        Raises:
            InputError: the program fails.
        """
        images = [
            {"image_id": number, "test": " ".join(candidate), "refs": list(map(" ".join, written))}
            for number, (candidate, written) in enumerate(zip(candidates, references, strict=True))
        ]
        with tempfile.TemporaryDirectory() as folder:
            asked, told = Path(folder) / "captions.json", Path(folder) / "scores.json"
            asked.write_text(json.dumps(images), encoding="utf-8")
            # Without -cache, which needs native code that not every machine can run.
            process = subprocess.run(
                [
                    *(java(NAME), *SETTINGS, "-Xmx8G", "-jar", str(self._jar), str(asked)),
                    *("-out", str(told), "-subset", "-silent"),
                ],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
            )
            if process.returncode or not told.is_file():
                raise InputError(
                    f"{NAME}'s Java program failed ({last_line(process.stderr)}); leave {NAME} out"
                )
            results = json.loads(told.read_text(encoding="utf-8"))
        scores = {result["image_id"]: result["scores"]["All"]["f"] for result in results}
        return Scores.of(NAME, np.array([scores[n] for n in range(len(images))], dtype=np.float64))
