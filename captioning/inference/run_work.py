"""Runs work in one process, or in several through Lightning."""

from typing import Any

from captioning.inference.work import Processes, Work


def results(work: Work, processes: Processes) -> list[Any] | None:
    """Do the work and collect the result of each process.

    A single process computes in place. Several are managed by Lightning, which starts them or
    detects that torchrun or SLURM did; each of them calls this function.

    Returns:
        The result of each process, in rank order; none in all processes but the first, which
        reports the results.

    Raises:
        InputError: the work failed in any of the processes.
        UsageError: this machine has too few devices.
    """
    if processes.count > 1:
        from captioning.inference.predict_loop import predicted  # Lightning takes seconds to import

        return predicted(work, processes)
    work.prepare(1)
    with work.captioner.prepared():
        for batch in work.batches(0, 1):
            work.step(batch)
    return [work.result()]
