import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from captioning import allocation
from captioning.cli.program import main
from captioning.errors import UsageError

FAULTS = """
import resource, torch
from captioning.allocation import keep_freed_memory

def faults_of_a_step() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.ones(2**21) for _ in range(12)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for change in (lambda: None, keep_freed_memory):
    change()
    print(min(faults_of_a_step() for _ in range(5)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is not glibc's")
def test_memory_that_is_freed_needs_no_new_pages() -> None:
    # Left to itself, glibc gives back what happens to lie at the end of its heap; this much always.
    given_back = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    command = [sys.executable, "-c", FAULTS]
    run = subprocess.run(command, env=given_back, capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert after < before / 5  # how large a page is, the system decides


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocation, "ctypes", None)
    allocation.keep_freed_memory()


def test_a_training_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(train, "keep_freed_memory", lambda: kept.append(True))
    with pytest.raises(UsageError):
        train.train(["--no_such_option=1"])
    assert kept == [True]


def test_a_search_of_the_command_line_keeps_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(allocation, "keep_freed_memory", lambda: kept.append(True))
    photo, model = tmp_path / "photo.jpg", tmp_path / "none.ckpt"
    photo.touch()
    assert main(["caption", str(photo), "--model", str(model)]) == 1
    assert kept == [True]
