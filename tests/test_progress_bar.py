import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from captioning import progress_bar
from captioning.cli import main
from captioning.progress_bar import ProgressBar, duration, say, stage
from captioning.reporter import Reporter


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """What is said on a stderr that is no terminal while a test lets time pass."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = Clock()
        self.reporter = Reporter(self.lines.append, self.clock)

    def after(self, seconds: float) -> list[str]:
        """The lines that come in the next seconds."""
        before = len(self.lines)
        for _ in range(round(seconds)):
            self.clock.now += 1
            self.reporter.speak_if_due()
        return self.lines[before:]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(progress_bar, "_reporter", told.reporter)
    return told


def test_a_line_tells_share_rate_and_time_left(told: Told) -> None:
    with ProgressBar("features", "photos", total=7000) as bar:
        lines = []
        for _ in range(35):
            lines += told.after(1)
            bar.update(25)
    assert lines == ["features: 10 % (725 of 7,000 photos, 25.0/s, 4:10 left)"]


def test_short_work_says_nothing(told: Told) -> None:
    with ProgressBar("features", "photos", total=10):
        assert told.after(29) == []


def test_a_line_comes_every_half_minute_though_nothing_gets_done(told: Told) -> None:
    with ProgressBar("features", "photos", total=10):
        assert told.after(70) == [
            "features: 0 % (0 of 10 photos, 0:30 so far)",
            "features: 0 % (0 of 10 photos, 1:00 so far)",
        ]
    assert told.after(100) == []


def test_many_short_stages_in_a_long_one_are_never_silent_for_longer(told: Told) -> None:
    silent, longest = 0, 0
    with stage("train"):
        for number in range(20):
            with stage(f"stage {number}"):
                for _ in range(17):
                    silent = 0 if told.after(1) else silent + 1
                    longest = max(longest, silent)
    assert longest < 30
    assert told.lines[0] == "stage 1: 0:13 so far"


def test_what_is_said_meanwhile_puts_off_the_next_line(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage("train"):
        told.after(20)
        say("epoch 1/3")
        assert told.after(29) == []
        assert told.after(1) == ["train: 0:50 so far"]
    assert capsys.readouterr().err == "epoch 1/3\n"


def test_results_on_stdout_put_off_nothing(told: Told) -> None:
    with stage("caption"):
        told.after(20)
        say("a dog", file=sys.stdout)
        assert len(told.after(10)) == 1


def test_a_hidden_stage_hides_all_around_it_and_within(told: Told) -> None:
    with stage("train"), stage("train", shown=False):
        bar = ProgressBar("features", "photos", total=10)
        bar.update(5)
        assert told.after(100) == []
        bar.close()
    with stage("train"):
        assert len(told.after(30)) == 1


def test_resumed_work_has_the_share_of_all_and_the_rate_of_the_new(told: Told) -> None:
    with ProgressBar("features", "photos", total=1000, initial=900) as bar:
        for _ in range(30):
            told.after(1)
            bar.update()
    assert told.lines == ["features: 92 % (929 of 1,000 photos, 1.0/s, 1:10 left)"]


def test_slow_parts_and_unknown_totals_are_told_plainly(told: Told) -> None:
    with ProgressBar("captioning", "photos") as bar:
        for _ in range(3):
            told.after(10 if bar.done < 2 else 9)
            bar.update()
        assert told.after(1) == ["captioning: 3 photos, 9.5 s each"]


def test_names_move_no_cursor(told: Told) -> None:
    with ProgressBar("\x1b[2J", "photos", total=1):
        assert told.after(30) == ["\\x1b[2J: 0 % (0 of 1 photos, 0:30 so far)"]


def test_a_line_comes_by_itself_while_a_part_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, came = list[str](), threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        came.set()

    monkeypatch.setattr(progress_bar, "_reporter", Reporter(write, interval=0.01))
    for _ in range(2):  # the thread of the first one has ended
        came.clear()
        with ProgressBar("features", "photos", total=10):
            assert came.wait(timeout=120)
    assert lines[0].startswith("features: 0 %")


def test_a_forked_process_says_nothing_and_waits_for_nothing() -> None:
    with stage("train"):
        with progress_bar._reporter.lock:  # as if a line were being written
            child = os.fork()
            if not child:
                with ProgressBar("features", "photos", total=1) as bar:
                    bar.update()
                os._exit(0 if len(progress_bar._reporter._going_on) == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_moves_and_no_line_comes(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with stage("train"), ProgressBar("features", "photos", total=40, leave=True) as bar:
        assert bar.is_moving
        for _ in range(40):
            told.clock.now += 1
            bar.update()
        assert told.after(100) == []
    shown = sys.stderr.getvalue()
    assert "features: 100%" in shown
    assert "1.00 photos/s" in shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0:00"), (59.6, "1:00"), (201.0, "3:21"), (3731.0, "1:02:11")]
)
def test_durations_are_read_at_a_glance(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of the line of everything that begins and could be told of."""
    names: list[str] = []

    class Names(Reporter):
        def begin(self, line: Callable[[], str | None]) -> None:
            names.append(str(line()).partition(":")[0])
            super().begin(line)

    monkeypatch.setattr(progress_bar, "_reporter", Names(lambda line: None))
    return names


def test_everything_long_of_a_training_is_told_of(
    begun: list[str], tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    stages = ["--model.encoder.init_args.trainable_stages", "0"]
    options = ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_epochs", "1"]
    features = ["--data.features", str(tmp_path / "features")]
    assert main(["train", "--config", str(tiny_config), *options, *features, *stages]) == 0
    assert [name for name in begun if name != "reading the captions"] == [
        *("train", "building the model", "building the vocabulary", "train"),
        *("features", "features", "preparing the objective"),
        *("check of the validation", "scoring the captions"),
        *("epoch 1/1", "epoch 1/1", "validation"),
        *("grounding captions", "ground", "intervals of the scores", "scoring the captions"),
        *("captioning the images to show", "writing validation.html"),
    ]


def test_a_training_without_progress_tells_of_none(
    begun: list[str], tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    options = ["--trainer.default_root_dir", str(tmp_path), "--trainer.max_epochs", "1"]
    options += ["--trainer.enable_progress_bar", "false"]
    assert main(["train", "--config", str(tiny_config), *options]) == 0
    assert set(begun) == {"train", "None"}


def test_everything_long_of_an_evaluation_is_told_of(
    begun: list[str], checkpoint: Path, shapes_data: Path, tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "scores")]
    assert main(["evaluate", "--model", str(checkpoint), "--data", str(shapes_data), *out]) == 0
    expected = {"evaluate", "loading the model", "reading the captions", "scoring the captions"}
    assert expected | {"intervals of the scores", "ground"} <= set(begun)


@pytest.mark.parametrize("rank", ["RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"])
def test_only_the_first_of_several_processes_tells(
    begun: list[str], rank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rank, "1")
    with contextlib.redirect_stdout(io.StringIO()):
        sizes = ["--train", "1", "--val", "1", "--test", "1", "--pixels", "32"]
        assert main(["shapes", str(tmp_path / "shapes"), *sizes]) == 0
    assert begun == ["None"]
