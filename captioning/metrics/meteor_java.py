"""METEOR 1.5, by its authors' own program in Java, to compare with.

Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
Language", WMT 2014, https://aclanthology.org/W14-3348.
"""

import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from captioning.errors import InputError
from captioning.metrics.java import SETTINGS, java, last_line, program
from captioning.metrics.meteor.normalization import BAR, generated_text, text_of_words
from captioning.metrics.scores import Scores

NAME = "METEOR-Java"


class MeteorJava:
    """Scores captions by METEOR, as the COCO evaluation calls it.

    The program starts with the first captions, in some seconds, and ends with this object.

    Raises:
        InputError: Java or the program is not there.
    """

    def __init__(self) -> None:
        jar = program(NAME, "meteor/meteor-1.5.jar")
        self._command = [java(NAME), *SETTINGS, "-Xmx2G", "-jar", str(jar)]
        self._command += ["-", "-", "-stdio", "-l", "en", "-norm"]
        # Not a pipe: one that nobody reads would stop the program when it is full.
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        weakref.finalize(self, self._complaints.close)

    @cached_property
    def _process(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
            errors="replace",
        )
        weakref.finalize(self, _end, process)
        return process

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> "JavaScores":
        """METEOR of captions.

        Args:
            candidates: the words of one caption per image.
            references: for each image the words of its references.

        Raises:
            InputError: the program fails.
        """
        lines = [
            self._reply(
                f" {BAR} ".join(["SCORE", *map(text_of_words, written), generated_text(candidate)])
            )
            for candidate, written in zip(candidates, references, strict=True)
        ]
        statistics = np.array([[float(number) for number in line.split()] for line in lines])
        images, corpus = self.scores(statistics)
        return JavaScores({NAME: corpus}, {NAME: images}, statistics, self)

    def scores(self, statistics: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """The scores of rows of statistics, and that of their sum.

        Args:
            statistics: (rows, numbers), the program's own; those of a corpus are the sum of those
                of its captions.

        Raises:
            InputError: the program fails.
        """
        rows = (" ".join(map(str, row)) for row in statistics.tolist())
        first = self._reply(f" {BAR} ".join(["EVAL", *rows]))
        *each, together = [float(first), *(float(self._line()) for _ in statistics)]
        return np.array(each), together

    def _reply(self, line: str) -> str:
        """The first line with which the program answers."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, so no line follows
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:  # the program ends where it cannot answer
            self._complaints.seek(0)
            complaint = last_line(self._complaints.read())
            raise InputError(f"{NAME}'s Java program failed ({complaint}); leave {NAME} out")
        return line


@dataclass(frozen=True)
class JavaScores(Scores):
    """METEOR of captions, whose score of a corpus is no mean over images.

    Attributes:
        statistics: (images, numbers), what the program found of every caption.
        meteor: the program.
    """

    statistics: NDArray[np.float64]
    meteor: MeteorJava

    def resampled(self, counts: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """METEOR from the summed statistics of corpora that are drawn from the images.

        Args:
            counts: (R, images), how often each of R corpora has each image.

        Returns:
            The scores of the corpora, (R,).
        """
        scores, _ = self.meteor.scores(counts @ self.statistics)
        return {NAME: scores}


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()
