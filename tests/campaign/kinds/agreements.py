"""Options of `caption` that must not change what it says, alone and together.

The same photos are captioned plainly and in another way: by other kernels, batches, neighbours,
formats, files and processes. Whatever else was asked for, the captions agree.
"""

import csv
import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.judge import Outcome
from tests.campaign.world import World

NEAR = 1e-3
"""The most by which scores and probabilities may differ."""

ASKED = (
    *("", "--greedy", "--beam 1", "--beam 5", "--beam 4 --length-penalty 0"),
    *("--sample", "--sample --seed 3", "--sample --temperature 2 --seed 1"),
    *("--sample --top-k 3", "--sample --top-p 0.7", "--sample --captions 3 --seed 5"),
    *("--captions 3", "--captions 3 --diverse", "--captions 2 --diverse --beam 2"),
    *("--begin a", "--avoid red", "--must-say a", "--begin a --must-say red --beam 4"),
    *("--min-length 6 --max-length 9", "--beam 3 --no-repeat-ngram 2", "--text a"),
)
"""What is asked for, by both commands."""

NEUTRAL = (
    *("--kernels on", "--kernels off", "--kernels off", "--batch-size 1", "--batch-size 2"),
    *("--batch-size 3", "--device cpu", "--max-megapixels 1"),
)
"""Options of both printed captions and bulk captioning that change no caption."""

PICTURES = ("--overlay pictures", "--gif pictures", "--html pictures", "--html p --map gradient")

PROBABILITY = re.compile(r" [01]\.\d\d(?= |$)")
"""What follows each word of a caption that is read."""

NOT_BULK = ("--captions", "--diverse", "--text")
"""What bulk captioning does not do."""

Said = dict[str, list[dict[str, Any]]]
"""The captions of each photo, by its name: the text, and what else a format says."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    (folder / "given").mkdir()
    model = ["--model", random.choice(("shapes", "shapes", str(world.model)))]
    photos = random.sample(world.photos, k=random.randint(2, 6))
    asked = random.choice(ASKED).split()
    plain = ["caption", *map(str, photos), *model, *asked, "--json"]
    is_bulk = random.random() < 0.4 and not set(NOT_BULK) & set(asked)
    form = "bulk" if is_bulk else random.choice(list(FORMATS))
    neutral = {text.split()[0]: text.split() for text in random.sample(NEUTRAL, k=2)}
    options = [*asked, *chain.from_iterable(neutral.values())]
    if random.random() < 0.2:
        model *= 2  # an ensemble of two models that are one
    if not is_bulk and random.random() < 0.3:
        options += random.choice(PICTURES).split()
    way = random.choice((_named, _shuffled, _fewer, _listed, _in_a_folder))
    calls = [["caption", *way(photos, folder / "given", random), *model, *options]]
    label = [*asked, "as", form, way.__name__, *options[len(asked) :], f"{len(model) // 2} models"]
    before = None
    if is_bulk:
        calls[0] += ["--out", "bulk", "--shard-size", random.choice("123")]
        if random.random() < 0.4:
            calls *= 2
            before = partial(_remove_a_shard, folder / "bulk")
            label.append("a shard removed and written again")
        elif random.random() < 0.15:
            calls[0] += ["--devices", "2"]
            label.append("by two processes")
    else:
        calls[0] += FORMATS[form][0]
    again = [Call(each, before if at else None) for at, each in enumerate(calls)]
    read = partial(_of_shards if is_bulk else FORMATS[form][1], folder)
    return Case(" ".join(label), _steps(Call(plain), again, read, way is _fewer, folder))


def _steps(
    plain: Call, calls: list[Call], read: Callable[[Outcome], Said], fewer: bool, folder: Path
) -> Steps:
    outcome = yield plain
    found = judge.faults(outcome, folder)
    expected = _of_json(folder, outcome)
    if outcome.code != 0:
        return [*found, f"other: refused: {outcome.err[-200:]}"]
    for call in calls:
        outcome = yield call
        found += judge.faults(outcome, folder)
        if outcome.code != 0:
            return [*found, f"other: refused: {outcome.err[-200:]}"]
    captions = read(outcome)
    if captions.keys() != expected.keys() and not (fewer and captions.keys() < expected.keys()):
        found.append(f"other: captions of {sorted(captions)}, not of {sorted(expected)}")
    for photo in captions.keys() & expected.keys():
        if not _agree(captions[photo], expected[photo]):
            found.append(f"other: {photo}: {captions[photo]}, not {expected[photo]}"[:600])
    return [*found, *judge.half_written(folder)]


def _agree(found: Any, expected: Any) -> bool:
    """Whether values are the same, and numbers nearly; a format need not say everything."""
    if isinstance(found, dict):
        return all(_agree(found[name], expected[name]) for name in found.keys() & expected.keys())
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(_agree, found, expected))
    if isinstance(found, float):
        return abs(found - expected) <= NEAR
    return bool(found == expected)


def _named(photos: list[Path], given: Path, random: Random) -> list[str]:
    return list(map(str, photos))


def _shuffled(photos: list[Path], given: Path, random: Random) -> list[str]:
    return list(map(str, random.sample(photos, k=len(photos))))


def _fewer(photos: list[Path], given: Path, random: Random) -> list[str]:
    return list(map(str, random.sample(photos, k=len(photos) - 1)))


def _listed(photos: list[Path], given: Path, random: Random) -> list[str]:
    (given / "list").write_text("".join(f"{photo}\n" for photo in photos))
    return ["--list", str(given / "list")]


def _in_a_folder(photos: list[Path], given: Path, random: Random) -> list[str]:
    for photo in photos:
        shutil.copy(photo, given)
    return [str(given)]


def _remove_a_shard(folder: Path) -> None:
    sorted(folder.glob("captions-*.jsonl"))[0].unlink()


def _of_json(folder: Path, outcome: Outcome) -> Said:
    said: Said = {}
    for entry in map(json.loads, outcome.out.splitlines()):
        said.setdefault(Path(entry.pop("image")).stem, []).append(entry)
    return said


def _of_lines(folder: Path, outcome: Outcome) -> Said:
    said: Said = {}
    for photo, text in (line.split("\t") for line in outcome.out.splitlines()):
        text = PROBABILITY.sub("", text)
        said.setdefault(Path(photo).stem, []).append({"caption": text})
    return said


def _of_table(folder: Path, outcome: Outcome) -> Said:
    said: Said = {}
    with (folder / "captions.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            said.setdefault(Path(row["file_name"]).stem, []).append({"caption": row["caption"]})
    return said


def _of_texts(folder: Path, outcome: Outcome) -> Said:
    return {
        file.stem: [{"caption": line} for line in file.read_text().splitlines()]
        for file in (folder / "texts").iterdir()
    }


def _of_shards(folder: Path, outcome: Outcome) -> Said:
    shards = sorted((folder / "bulk").glob("captions-*.jsonl"))
    entries = [json.loads(line) for shard in shards for line in shard.read_text().splitlines()]
    return {Path(entry.pop("image")).stem: [entry] for entry in entries}


FORMATS: dict[str, tuple[list[str], Callable[[Path, Outcome], Said]]] = {
    "JSON": (["--json"], _of_json),
    "lines": ([], _of_lines),
    "a table": (["--csv", "captions.csv"], _of_table),
    "texts": (["--txt-dir", "texts"], _of_texts),
}
"""How captions are written: options, and what reads them."""

AGREEMENTS = Kind("agreements", whole=200, tenth=10, case=_case)
