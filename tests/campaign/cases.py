"""Kinds of cases, and the runs of many cases at a time."""

import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.campaign.forks import SECONDS, Call, Child
from tests.campaign.judge import Outcome
from tests.campaign.world import World

Steps = Generator[Call, Outcome, list[str]]
"""Commands, one after the other; each is answered by its outcome. Returns the faults."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        label: what it tries, in a line.
        steps: what is run.
    """

    label: str
    steps: Steps


@dataclass(frozen=True)
class Kind:
    """Cases of one kind.

    Attributes:
        name: as ``--kind`` has it.
        whole: how many cases a whole campaign runs.
        tenth: how many of them `scripts/test --all` runs.
        case: makes the case of a number, which else depends on the random numbers alone.
        prepare: done in a child before the first case, where this kind needs more of the world.
        around: a context within which the cases run, such as a server's life; it adds to the list
            that it gives what it finds wrong in the end.
    """

    name: str
    whole: int
    tenth: int
    case: Callable[[World, int, Random, Path], Case]
    prepare: Callable[[World], None] | None = None
    around: Callable[[World], AbstractContextManager[list[str]]] | None = None


@dataclass
class Answer:
    """What became of a case.

    Attributes:
        kind: name of its kind.
        seed: of its random numbers.
        number: of the case.
        label: what it tried.
        ended: how its last command ended.
        faults: what is wrong with that.
        seconds: it took.
        memory: bytes at the peak.
        complaint: the end of stderr.
    """

    kind: str
    seed: int
    number: int
    label: str
    ended: str = "none"
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    memory: int = 0
    complaint: str = ""

    def __str__(self) -> str:
        again = f"scripts/campaign --kind {self.kind} --seed {self.seed} --only {self.number}"
        return f"{again}\n  {self.label[:300]}\n  " + "\n  ".join(self.faults)


class _Running:
    """A case with the command that it is at."""

    def __init__(self, answer: Answer, case: Case, folder: Path, seconds: float) -> None:
        self.answer, self.case, self.folder, self.seconds = answer, case, folder, seconds
        self.child = Child(next(case.steps), folder, seconds)

    def goes_on(self) -> bool:
        """Whether it has not ended; begins the next command where the last one has."""
        outcome = self.child.outcome()
        if outcome is None:
            return True
        answer = self.answer
        answer.ended, answer.complaint = outcome.answer, outcome.err[-2000:]
        answer.seconds += outcome.seconds
        answer.memory = max(answer.memory, outcome.memory)
        try:
            self.child = Child(self.case.steps.send(outcome), self.folder, self.seconds)
        except StopIteration as end:
            answer.faults = end.value
            return False
        return True


def answers(
    kind: Kind,
    world: World,
    seed: int,
    numbers: Iterable[int],
    jobs: int = 2,
    seconds: float = SECONDS,
    keep: bool = False,
) -> Iterator[Answer]:
    """What becomes of the cases of these numbers, in the order in which they end.

    Where something is around them all, such as a server, one more answer tells of that.

    Args:
        kind: of the cases.
        world: what they work with.
        seed: of their random numbers.
        numbers: of the cases.
        jobs: how many run at a time.
        seconds: after which a command is a hang.
        keep: whether to leave the folders of the cases.
    """
    around: AbstractContextManager[list[str]] = nullcontext([])
    if kind.around is not None:
        around = kind.around(world)
    with around as found:
        yield from _answers(kind, world, seed, numbers, jobs, seconds, keep)
    if kind.around is not None:
        yield Answer(kind.name, seed, -1, "what is around them all", "done", found)


def _answers(
    kind: Kind,
    world: World,
    seed: int,
    numbers: Iterable[int],
    jobs: int,
    seconds: float,
    keep: bool,
) -> Iterator[Answer]:
    running: list[_Running] = []
    waiting = iter(numbers)
    while True:
        while len(running) < jobs and (number := next(waiting, None)) is not None:
            folder = world.folder / "cases" / f"{kind.name}-{number}"
            folder.mkdir(parents=True)
            case = kind.case(world, number, Random(f"{kind.name} {seed} {number}"), folder)
            answer = Answer(kind.name, seed, number, case.label)
            running.append(_Running(answer, case, folder, seconds))
        if not running:
            return
        ended = [case for case in running if not case.goes_on()]
        for case in ended:
            running.remove(case)
            if not keep:
                shutil.rmtree(case.folder, ignore_errors=True)
                shutil.rmtree(case.folder.with_name(f"{case.folder.name}.logs"))
            yield case.answer
        if not ended:
            time.sleep(0.005)


def done_in_child(work: Callable[[], object], folder: Path) -> None:
    """Do something in a child that this process must not, such as computing.

    Raises:
        RuntimeError: it failed.
    """

    def succeed() -> int:
        work()
        return 0

    child = Child(Call(instead=succeed), folder, seconds=900)
    while (outcome := child.outcome()) is None:
        time.sleep(0.01)
    if outcome.code != 0:
        raise RuntimeError(outcome.err)
