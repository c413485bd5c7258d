import logging

import pytest

from captioning.serving import faults_on_stderr
from captioning.serving.log import LINES, LONGEST_LINE


def fail(times: int, sentence: str) -> None:
    for _ in range(times):
        try:
            raise RuntimeError(sentence)
        except RuntimeError:
            logging.getLogger("asyncio").exception("a callback failed")


def test_a_fault_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with faults_on_stderr():
        fail(1, "out\nof memory")
    assert capsys.readouterr().err == (
        "captioning: a callback failed: RuntimeError: out of memory (test_log.py, line 12)\n"
    )


def test_faults_are_told_a_few_times_only(capsys: pytest.CaptureFixture[str]) -> None:
    with faults_on_stderr():
        fail(1000, "x" * 10_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == LINES
    assert max(map(len, lines)) == LONGEST_LINE
