"""The judge finds each fault, so that the campaign cannot pass by being blind."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from tests.campaign import judge
from tests.campaign.judge import Outcome

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the campaign reads /proc and sets Linux's limits"
)

ENDED = Outcome(code=0, out="", err="", seconds=1, memory=10**8, processes=1)


def judged(folder: Path, program: str, seconds: float = 60) -> tuple[list[str], Outcome]:
    """What is found wrong with a child that does this in a folder."""
    begun = dedent(
        """
        import os, sys, time
        from pathlib import Path
        from tests.campaign import judge
        from tests.campaign.forks import Call, Child

        def instead():
        {program}

        folder = Path(sys.argv[1])
        child = Child(Call(instead=instead), folder, seconds=float(sys.argv[2]))
        while (outcome := child.outcome()) is None:
            time.sleep(0.01)
        print([judge.faults(outcome, folder), outcome.__dict__])
        """
    )
    body = "\n".join(f"    {line}" for line in program.splitlines())
    process = subprocess.run(
        [sys.executable, "-c", begun.replace("{program}", body), str(folder), str(seconds)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found, outcome = eval(process.stdout.splitlines()[-1])
    return found, Outcome(**outcome)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("raise ValueError('no')", "traceback: ValueError: no"),
        ("block = b'x' * 2_100_000_000\nreturn 0", "memory: 2.1 GB"),
        ("return len(bytes(2**36))", "memory: MemoryError"),
        ("while True:\n    os.fork() or time.sleep(60)", "memory:"),
        ("os.system('touch executed')\nreturn 0", "execution:"),
        ("os.kill(os.getpid(), 11)", "crash: SIGSEGV"),
        ("return 1", "other: exit code 1 and no line that says why"),
        ("return 77", "other: exit code 77"),
        (
            "print('captioning: ', file=sys.stderr)\nreturn 1",
            "other: a complaint that says nothing",
        ),
        ("print('captioning: \\x1b[31m', file=sys.stderr)\nreturn 1", "other: '\\x1b' raw"),
        ("print('captioning: a\\n' * 3, file=sys.stderr)\nreturn 1", "other: 3 lines for 1 inputs"),
        ("print('x' * 2_000_000, file=sys.stderr)\nreturn 0", "other: 2000001 bytes"),
    ],
)
def test_every_fault_of_a_command_is_found(tmp_path: Path, program: str, fault: str) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    found, outcome = judged(folder, program)
    assert any(text.startswith(fault) for text in found), (found, outcome)


@pytest.mark.integration
def test_a_hang_is_found(tmp_path: Path) -> None:
    found, _ = judged(tmp_path, "time.sleep(60)", seconds=1)
    assert found == ["hang: ended after 1 s"]


@pytest.mark.integration
def test_a_refusal_in_one_line_is_no_fault(tmp_path: Path) -> None:
    found, outcome = judged(tmp_path, "print('captioning: no', file=sys.stderr)\nreturn 1")
    assert (found, outcome.answer) == ([], "bad input")


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_signal_needs_a_line(tmp_path: Path, code: int) -> None:
    interrupted = replace(ENDED, code=code, err="captioning: interrupted\n")
    assert (judge.faults(interrupted, tmp_path), interrupted.answer) == ([], "interrupted")
    [fault] = judge.faults(replace(ENDED, code=code), tmp_path)
    assert fault.startswith(f"other: exit code {code} and no line that says why")


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", os.urandom(1000))


def picture(path: Path) -> None:
    from PIL import Image

    Image.effect_noise((50, 50), 50).save(path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "best.ckpt": archive,
    "frequencies.npz": archive,
    "photo.png": picture,
    "report.json": lambda path: path.write_text(json.dumps({"a": [1, 2, 3]})),
    "captions.jsonl": lambda path: path.write_text('{"a": 1}\n{"a": 2}\n'),
    "metrics.csv": lambda path: path.write_text("a,b\n1,2\n"),
    "page.html": lambda path: path.write_text("<html>text</html>\n"),
    "config.yaml": lambda path: path.write_text("a: {b: 'c', d: e}\n"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_whole_file_is_no_fault_and_a_part_of_it_is_one(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    assert judge.half_written(tmp_path) == []
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    [fault] = judge.half_written(tmp_path)
    assert fault.startswith(f"half-written: {name}")


def test_a_temporary_file_may_stay_behind_only_where_the_command_was_killed(tmp_path: Path) -> None:
    (tmp_path / ".best.x.ckpt").touch()
    assert judge.half_written(tmp_path) == ["half-written: .best.x.ckpt: left behind"]
    assert judge.half_written(tmp_path, killed=True) == []


def test_nan_is_no_json() -> None:
    assert judge.no_json('{"score": -1.5}\n') == []
    [fault] = judge.no_json('{"score": NaN}\n')
    assert "NaN" in fault
