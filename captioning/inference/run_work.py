"""Work done by one process, or by the several that Lightning starts."""

from typing import Any

from captioning.inference.work import Processes, Work


def results(work: Work, processes: Processes) -> list[Any] | None:
    """Do the work and collect what each process has found.

    One process computes right here. Several are Lightning's: it starts them by itself or finds
    itself started by torchrun or SLURM, and every one of them comes by here.

    Returns:
        The result of each process, in their order; none in all processes but the first, which is
        the one to tell about the results.

    Raises:
        InputError: the work cannot be done, in whichever process this was found.
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
