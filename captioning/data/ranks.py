"""Steps that all distributed processes, such as the ranks of DDP, do together."""

from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor, distributed

from captioning.errors import InputError

Result = TypeVar("Result")


def process_and_count() -> tuple[int, int]:
    """The rank of this process over all machines, from 0, and the number of processes."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def run_on_all_ranks(step: Callable[[], Result]) -> list[Result]:
    """The picklable results of a step that every rank runs, in rank order.

    A failure on one rank raises on all, so that no rank waits for one that has stopped.

    Raises:
        InputError: the step failed on another rank, for this reason.
        Exception: whatever the step raised on this one.
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
    """The result of a function that only the first rank calls, returned on all ranks.

    Raises:
        InputError: the function failed, for this reason.
    """
    return run_on_all_ranks(lambda: decide() if process_and_count()[0] == 0 else None)[0]  # type: ignore[return-value]


def sum_over_ranks(numbers: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """The sums of numbers over all ranks, which all must call this."""
    if process_and_count()[1] > 1:
        numbers = numbers.clone()
        distributed.all_reduce(numbers)
    return numbers
