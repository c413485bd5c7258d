"""How long METEOR takes: ours and its authors' Java program, each pinned to one core.

    python -m benchmarks.meteor --captions FLICKR8K/Flickr8k.token.txt

prints a table for docs/how-to/evaluate.md: loading, scoring, and all from the start of the process
to its end, medians of the rounds. Each round is a process of its own, with Java's below it, on one
core by `taskset`. The copy of the paraphrases is made before, if it is not there.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.agreement import DisagreementError
from captioning.cli.options import positive
from captioning.data.readers.flickr8k import numbered_captions
from captioning.data.tokens import tokenize
from captioning.errors import InputError

if TYPE_CHECKING:
    from captioning.metrics.scores import Scorer

CAPTIONS, REFERENCES = 5000, 5
ROWS = {"ours": "`--meteor`, with the copy", "java": "`--meteor-java`"}

Words = list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.child:
        print(json.dumps(_times(*options.child)))
        return 0
    try:
        print(table(options.count, options.rounds, options.core, options.captions))
    except (InputError, DisagreementError) as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    return 0


def table(count: int, rounds: int, core: int, captions: Path | None) -> str:
    """The times of both in seconds, as a table of a page.

    Args:
        count: of captions.
        rounds: of each, in turn.
        core: that both run on.
        captions: Flickr8k's; drawn scenes' if none.

    Raises:
        InputError: the captions cannot be read, or `taskset` is missing.
        DisagreementError: the two score the captions differently.
    """
    if shutil.which("taskset") is None:
        raise InputError("no `taskset` here, which pins a process to a core; install util-linux")
    pairs = drawn(count) if captions is None else written(captions, count)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "captions.json"
        file.write_text(json.dumps(pairs))
        _run("ours", file, core)  # leaves the copy of the paraphrases
        for _ in range(rounds):
            for name in ROWS:
                found[name].append(_run(name, file, core))
    ours, java = (found[name][0]["METEOR"] for name in ROWS)
    if abs(ours - java) > 1e-8:
        raise DisagreementError(f"METEOR of the corpus is {ours}, and {java} by the Java program")
    parts = ("loading", "scoring", "start to end")
    lines = [
        f"| {len(pairs):,} captions, {REFERENCES} references each | {' | '.join(parts)} |",
        "|---|--:|--:|--:|",
    ]
    for name, label in ROWS.items():
        medians = (median(times[part] for times in found[name]) for part in parts)
        lines.append(f"| {label} | {' | '.join(f'{seconds:.1f} s' for seconds in medians)} |")
    return "\n".join(lines)


def written(file: Path, count: int) -> list[tuple[Words, list[Words]]]:
    """The first caption of each photo of Flickr8k, with its four others and the next photo's first.

    Raises:
        InputError: the file cannot be read.
    """
    photos: dict[str, list[Words]] = defaultdict(list)
    for name, caption in numbered_captions(file):
        photos[name.rpartition("#")[0]].append(tokenize(caption))
    every = [captions for captions in photos.values() if len(captions) == REFERENCES]
    following = [*every[1:], *every[:1]]
    pairs = zip(every, following, strict=True)
    return [(own[0], [*own[1:], other[0]]) for own, other in pairs][:count]


def drawn(count: int) -> list[tuple[Words, list[Words]]]:
    """A caption of each drawn scene, and five others."""
    import numpy as np

    from captioning.shapes import captions, random_scene

    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(count):
        scene = random_scene(rng)
        several = [tokenize(text) for text in [*captions(scene, rng), *captions(scene, rng)]]
        pairs.append((several[0], several[1 : REFERENCES + 1]))
    return pairs


def _run(name: str, file: Path, core: int) -> dict[str, float]:
    """What one process measures, and how long it took from start to end."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.meteor"]
    began = perf_counter()
    ran = subprocess.run(
        [*command, "--child", name, str(file)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    took = perf_counter() - began
    if ran.returncode:
        raise InputError(ran.stderr.strip().rpartition("\n")[2])
    times: dict[str, float] = json.loads(ran.stdout)
    return times | {"start to end": took}


def _times(name: str, file: str) -> dict[str, float]:
    """The seconds of loading, up to the first score, and of scoring; and the corpus score."""
    pairs = json.loads(Path(file).read_text())
    candidates, references = [caption for caption, _ in pairs], [several for _, several in pairs]
    began = perf_counter()
    if name == "java":
        from captioning.metrics.meteor_java import MeteorJava

        meteor: Scorer = MeteorJava()
    else:
        from captioning.metrics.meteor.scorer import Meteor

        meteor = Meteor()
    meteor([["a", "dog"]], [[["a", "dog"]]])
    loaded = perf_counter()
    [score] = meteor(candidates, references).corpus.values()
    return {"loading": loaded - began, "scoring": perf_counter() - loaded, "METEOR": score}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.meteor",
        description="Times METEOR, ours and its authors' Java program, on one core.",
    )
    parser.add_argument(
        "--captions",
        type=Path,
        metavar="FILE",
        help="Flickr8k.token.txt, whose captions are scored (default: those of drawn scenes)",
    )
    parser.add_argument("--count", type=positive, default=CAPTIONS, help="captions (default: 5000)")
    parser.add_argument("--rounds", type=positive, default=3, help="of each (default: 3)")
    parser.add_argument("--core", type=int, default=0, help="which both run on (default: 0)")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
