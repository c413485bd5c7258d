"""Work that every process of a training does at the same time, such as the ranks of DDP."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed

from captioning.errors import InputError

Result = TypeVar("Result")


def process_and_count() -> tuple[int, int]:
    """Which process this is, counted from 0 over all machines, and how many there are."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def run_on_all_ranks(step: Callable[[], Result]) -> list[Result]:
    """Do a step in every process and wait for all; each gets the results of all, in order.

    What fails in one process fails in all, so that none waits for one that has given up.

    Args:
        step: its results can be pickled.

    Raises:
        InputError: the step failed in another process, for this reason.
        Exception: whatever the step raised in this one.
    """
    result: Any = None
    failure: Exception | None = None
    try:
        result = step()
    except Exception as error:
        failure = error
    outcomes: list[Any] = [(result, failure and (str(failure) or repr(failure)))]
    count = process_and_count()[1]
    if count > 1:
        [own] = outcomes
        outcomes = [None] * count
        distributed.all_gather_object(outcomes, own)
    if failure is not None:
        raise failure
    for _, reason in outcomes:
        if reason is not None:
            raise InputError(reason)
    return [result for result, _ in outcomes]


def decided_by_first_rank(decide: Callable[[], Result]) -> Result:
    """What the first process decides, in all of them.

    Raises:
        InputError: it could not decide, for this reason.
    """
    return run_on_all_ranks(lambda: decide() if process_and_count()[0] == 0 else None)[0]  # type: ignore[return-value]
