import io
import re
import sys
import time

import pytest

from captioning import progress_bar
from captioning.progress_bar import ProgressBar, say, stage

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come after a twentieth of a second, not after half a minute."""
    monkeypatch.setattr(progress_bar, "INTERVAL", 0.05)


def test_short_work_prints_nothing(capsys: Capture) -> None:
    with stage("train"), ProgressBar("features", "photos", total=10) as bar:
        bar.update(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("at_once")
def test_longer_work_prints_lines(capsys: Capture) -> None:
    with ProgressBar("features", "photos", total=7000, initial=1000) as bar:
        time.sleep(0.1)
        bar.update(750)
    shape = r"features: 1750/7000 photos, +([\d.]+) photos/s, \d\d:\d\d left\n"
    found = re.fullmatch(shape, capsys.readouterr().err)
    assert found is not None
    assert 0 < float(found[1]) <= 7500  # of the 750 new ones
    with stage("loading"), ProgressBar("looking \x1b[2J", "photos") as bar:
        time.sleep(0.2)
        bar.update(3)
    lines = sorted(capsys.readouterr().err.splitlines())
    assert lines[0] == "loading: still in progress"
    assert lines[1].startswith("looking \\x1b[2J: 3/? photos, ")


@pytest.mark.usefixtures("at_once")
def test_on_a_terminal_a_bar_moves_and_no_line_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar("features", "photos", total=40, leave=True) as bar:
        assert bar.is_moving
        time.sleep(0.2)
        bar.update(40)
        say("epoch 1/3")
    shown = terminal.getvalue()
    assert "features: 100%" in shown
    assert "epoch 1/3\n" in shown
    assert "features: 40/40" not in shown


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("rank", progress_bar.RANKS)
def test_only_the_first_of_several_processes_reports(
    rank: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv(rank, "1")
    with stage("train"), ProgressBar("features", "photos", total=10) as bar:
        time.sleep(0.1)
        bar.update(5)
    assert capsys.readouterr().err == ""


def test_what_is_said_is_safe_for_terminals(capsys: Capture) -> None:
    say("a\tb", "c\x1b[31m\nd")
    say("e\r", file=sys.stdout)
    assert capsys.readouterr() == ("e\\r\n", "a\tb\nc\\x1b[31m\\nd\n")
