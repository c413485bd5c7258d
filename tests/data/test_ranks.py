"""Steps that all ranks do together."""

import subprocess
import sys
from pathlib import Path

import pytest

from captioning.data.feature_cache import process_and_count, run_on_all_ranks


def test_a_single_process_is_rank_zero_of_one() -> None:
    assert process_and_count() == (0, 1)
    assert run_on_all_ranks(lambda: 3) == [3]
    with pytest.raises(ZeroDivisionError):
        run_on_all_ranks(lambda: 1 // 0)


PROGRAM = """
import sys
from torch import distributed
from captioning.data.feature_cache import run_on_all_ranks
from captioning.errors import InputError

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
print(run_on_all_ranks(lambda: rank * 10))

def step():
    if rank == 1:
        raise ValueError("the second cannot")

try:
    run_on_all_ranks(step)
except (InputError, ValueError) as error:
    print(type(error).__name__, error)
distributed.destroy_process_group()
"""


@pytest.mark.integration
def test_what_fails_in_one_process_fails_in_all(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen(
            [*command, str(rank), f"file://{tmp_path}/meeting"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    first, second = (process.communicate()[0].splitlines() for process in both)
    assert first == ["[0, 10]", "InputError the second cannot"]
    assert second == ["[0, 10]", "ValueError the second cannot"]
