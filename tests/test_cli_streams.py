import os
import signal
import subprocess
import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest

import captioning.__main__ as program
from captioning.cli import main
from captioning.cli.program import INTERRUPTED
from captioning.errors import ending_signals
from captioning.shapes import writer

REDIRECTIONS = ["> /dev/full", "2> /dev/full > /dev/full", ">&-", ">&- 2>&-"]


def run(redirection: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command with its output redirected by a shell."""
    command = f'"$@" {redirection}'
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "captioning", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=buffered,
    )


@pytest.mark.integration
@pytest.mark.parametrize("arguments", [["--help"], ["check", "DATA"]], ids=" ".join)
@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_unwritable_output_is_one_line(
    arguments: list[str], redirection: str, shapes_data: Path
) -> None:
    given = [str(shapes_data) if argument == "DATA" else argument for argument in arguments]
    finished = run(redirection, *given)
    assert finished.returncode in (1, 2)
    lines = finished.stderr.splitlines()
    assert len(lines) == ("2>" not in redirection)
    assert all(line.startswith("captioning: standard output") for line in lines)


@pytest.mark.integration
def test_a_report_goes_through_standard_output(shapes_data: Path, tmp_path: Path) -> None:
    captions = str(shapes_data / "annotations" / "captions_val.json")
    results = tmp_path / "results.json"
    results.write_text('[{"image_id": 1000001, "caption": "a circle"}]')
    finished = run("| cat", "score", str(results), captions, "--json", "/dev/stdout")
    assert finished.returncode == 0
    assert finished.stdout.startswith("{")
    assert "BLEU-4" in finished.stdout.splitlines()[-1] or "CIDEr" in finished.stdout


def test_a_notebook_s_backend_for_pictures_does_not_matter() -> None:
    code = """
import sys
import time
from captioning.__main__ import main

sys.argv = ["captioning", "--help"]
try:
    main()
finally:
    import matplotlib.figure
"""
    backend = {"MPLBACKEND": "module_that_is_not_installed"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | backend)


def test_a_bare_interrupt_says_that_it_was_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "random_scene", interrupted)
    alone = ["--processes", "1"]  # another process would not have the change above
    assert main(["shapes", str(tmp_path / "shapes"), *alone]) == INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == "captioning: interrupted"


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (signal.SIGINT, KeyboardInterrupt),
        (signal.SIGINT, ImportError),
        (signal.SIGTERM, KeyboardInterrupt),
        (signal.SIGHUP, KeyboardInterrupt),
    ],
)
def test_an_interrupt_among_the_first_imports_is_one_line(
    number: signal.Signals,
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == "captioning.cli":
                try:
                    signal.raise_signal(number)
                except KeyboardInterrupt:  # of which compiled modules make other errors
                    raise raised from None

    for name in [name for name in sys.modules if name.startswith("captioning.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    inherited = signal.signal(number, signal.SIG_DFL)  # under nohup, SIGHUP is ignored
    try:
        assert program.main() == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, inherited)
    assert capsys.readouterr().err == "captioning: interrupted\n"


def test_an_interrupt_within_a_finalizer_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def command() -> int:
        Interrupted()
        time.sleep(30)
        return 0

    monkeypatch.setattr("captioning.cli.main", command)
    assert program.main() == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "captioning: interrupted\n"


@pytest.mark.integration
def test_an_interrupted_command_does_not_wait_for_its_threads() -> None:
    code = """
import signal
import time
from concurrent.futures import ThreadPoolExecutor
import captioning.cli
from captioning.__main__ import run

def command():
    ThreadPoolExecutor(1).submit(time.sleep, 600)
    signal.raise_signal(signal.SIGINT)

captioning.cli.main = command
run()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "captioning: interrupted\n")


def test_a_signal_that_is_ignored_as_under_nohup_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hung_up() -> int:
        signal.raise_signal(signal.SIGHUP)
        return 0

    monkeypatch.setattr("captioning.cli.main", hung_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert program.main() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_ends_a_command_though_a_shell_starts_background_jobs_without_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert signal.SIGINT in ending_signals()
    finally:
        signal.signal(signal.SIGINT, before)
