import logging

import pytest

from captioning.serving import faults_on_stderr
from captioning.serving.log import LINES, LONGEST_LINE, PERIOD


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


def test_a_traceback_is_logged_by_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with faults_on_stderr():
        logging.getLogger("uvicorn.error").error("Traceback:\n  line 1\nRuntimeError: no memory\n")
    assert capsys.readouterr().err == "captioning: RuntimeError: no memory\n"


def test_a_repeated_fault_is_logged_once_in_a_period(capsys: pytest.CaptureFixture[str]) -> None:
    with faults_on_stderr():
        fail(1000, "out of memory")
    assert capsys.readouterr().err.count("\n") == 1


def test_few_faults_are_logged_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    with faults_on_stderr(clock=lambda: seconds):
        for number in range(1000):
            fail(1, f"{number} " + "x" * 10_000)
        seconds = PERIOD + 1
        fail(1, "the last")
    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) == LINES
    assert max(map(len, lines)) == LONGEST_LINE
    assert last.startswith(f"captioning: ({1000 - LINES} faults were not logged) a callback failed")
