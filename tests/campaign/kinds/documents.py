"""Hostile JSON, CSV, lists and archives of the commands that read them."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds.damage import damaged
from tests.campaign.kinds.places import VALUES, changed
from tests.campaign.world import World

TEXTS = (
    *("", "null", "1", '"x"', "[]", "{}", "[1,]", "{'a': 1}", "// no\n{}", "\x00", "\ufeff[]"),
    "[" * 100_000,
    '{"a":' * 100_000,
    "[" * 100_000 + "]" * 100_000,
    "9" * 5000,
    "[NaN, Infinity, -Infinity]",
    '{"a": 1, "a": 2}',
    '["\\ud800"]',
    '["\\u0000"]',
    "[" + ",".join(["1"] * 10**6) + "]",
    '{"images": [], "annotations": []}',
    '{"images": [], "annotations": [], "categories": []}',
    '{"categories": {"star": ["star"] }, "others": 1}',
)
"""JSON, or what looks like it."""

MASKS: tuple[Any, ...] = (
    {"size": [10**6, 10**6], "counts": [10**12]},
    {"size": [10**6, 10**6], "counts": "PPYo1"},
    {"size": [48, 48], "counts": ""},
    {"size": [48, 48], "counts": "\x00\x7f~~~~~~~~~"},
    {"size": [48, 48], "counts": "0" * 10**5},
    {"size": [48, 48], "counts": [-1, 2**31, 5]},
    {"size": [48, 48], "counts": [2**32 - 1] * 10},
    {"size": [-1, 48], "counts": "k`07"},
    {"size": [0, 0], "counts": ""},
    {"size": [2**31, 2**31], "counts": [0]},
    {"size": [48], "counts": [1]},
    {"size": "x", "counts": None},
    [[0, 0, 10**9, 0, 10**9, 10**9]],
    [[float("nan")] * 6],
    [[1, 2]],
    [[]],
    [[10**400] * 6],
)
"""Segmentations as pycocotools reads them."""

BOXES: tuple[Any, ...] = (
    [0, 0, 10**400, 1],
    [float("nan")] * 4,
    [-1, -1, -1, -1],
    [1e308, 1e308, 1e308, 1e308],
    [0, 0, 0, 0],
    [True] * 4,
    [0, 0, 10**12, 10**12],
)


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    (folder / "given").mkdir()
    make = random.choices(list(TARGETS), weights=list(TARGETS.values()))[0]
    label, arguments = make(world, folder / "given", random)
    return Case(f"{label}: {' '.join(arguments)[:200]}", _steps(arguments, folder))


def _steps(arguments: list[str], folder: Path) -> Steps:
    outcome = yield Call(arguments)
    silent = arguments[0] == "check"
    inputs = 2000 if "--list" in arguments else 1
    return [*judge.faults(outcome, folder, inputs, silent), *judge.half_written(folder)]


def _write(path: Path, value: Any, random: Random) -> str:
    """Write JSON that is not as it should be; returns what is wrong."""
    how = random.random()
    if how < 0.15:
        text = random.choice(TEXTS)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return f"text {text[:30]!r}"
    if how < 0.3:
        path.write_bytes(damaged(json.dumps(value).encode(), random))
        return "damaged bytes"
    if how < 0.36:
        encoding = random.choice(("utf-16", "utf-32", "cp037", "utf-7"))
        path.write_bytes(json.dumps(value, ensure_ascii=False).encode(encoding, "replace"))
        return encoding
    told = changed(value, random)
    text = json.dumps(value)
    if random.random() < 0.1:  # more digits than Python reads
        text = text.replace(random.choice("0123456789"), "1" * 5000, 1)
        told += ", an integer of 5,000 digits"
    path.write_text(text)
    return told


def _results(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    value = json.loads(world.results.read_text())
    if random.random() < 0.1:
        value = value * random.choice((1, 2, 10**5))
    told = _write(given / "results.json", value, random)
    return f"results, {told}", ["score", str(given / "results.json"), str(world.references)]


def _references(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    value = json.loads(world.references.read_text())
    if random.random() < 0.4:
        value = _karpathy(value)
    told = _write(given / "references.json", value, random)
    if random.random() < 0.3:
        training = ["--training", str(given / "references.json"), "--json", "report.json"]
        return f"training, {told}", ["score", str(world.results), str(world.references), *training]
    return f"references, {told}", ["score", str(world.results), str(given / "references.json")]


def _many_captions(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    """A million captions of one image."""
    value = json.loads(world.references.read_text())
    value["annotations"] += [value["annotations"][0]] * 10**6
    (given / "references.json").write_text(json.dumps(value))
    paths = [str(world.results), str(given / "references.json")]
    return "a million captions of an image", ["score", *paths]


def _frequencies(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    file = given / "frequencies.npz"
    file.write_bytes(damaged(world.frequencies.read_bytes(), random))
    paths = [str(world.results), str(world.references)]
    return "frequencies", ["score", *paths, "--frequencies", str(file)]


def _words(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    told = _write(given / "words.json", json.loads(world.words.read_text()), random)
    arguments = ["--data", str(world.shapes), "--model", str(world.model), "--limit", "1"]
    words = ["--words", str(given / "words.json"), "--out", "out"]
    return f"words, {told}", ["ground", *arguments, *words]


def _list(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    lines = [str(world.photos[0])] * random.choice((1, 3))
    odd = (
        "",
        " ",
        "missing.jpg",
        "\x1b[31m",
        "\udcff",
        "a" * 5000,
        ".",
        "/dev/null",
        "\0",
        "\r",
        "-",
    )
    lines += random.sample(odd, k=random.choice((1, 3)))
    content = "\n".join(lines).encode(errors="surrogateescape")
    (given / "list").write_bytes(damaged(content, random) if random.random() < 0.3 else content)
    arguments = ["--list", str(given / "list"), "--model", str(world.model)]
    out = random.choice(([], ["--out", "out"], ["--json"]))
    return f"list {lines[-1]!r}"[:80], ["caption", *arguments, *out]


def _coco(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    data = given / "data"
    (data / "annotations").mkdir(parents=True)
    for split in ("train", "val", "test"):
        (data / split).symlink_to(world.shapes / split)
    for file in (world.shapes / "annotations").glob("*.json"):
        (data / "annotations" / file.name).write_bytes(file.read_bytes())
    name = random.choice(("captions_val", "instances_val", "instances_val", "captions_train"))
    file = data / "annotations" / f"{name}.json"
    value = json.loads(file.read_text())
    if name == "instances_val" and random.random() < 0.4:
        return _masks(world, given, file, value, random)
    if name == "instances_val" and random.random() < 0.4:
        entry = random.choice(value["annotations"])
        key, values = random.choice((("bbox", BOXES), ("category_id", VALUES)))
        entry[key] = random.choice(values)
        file.write_text(json.dumps(value))
        told = key
    else:
        told = _write(file, value, random)
    return f"{name}, {told}", _of_data(data, world, random)


def _masks(
    world: World, given: Path, file: Path, value: dict[str, Any], random: Random
) -> tuple[str, list[str]]:
    """A mask that every caption speaks of, whatever its words, so that it is looked at."""
    mask = random.choice(MASKS)
    [category, *_] = value["categories"]
    for entry in value["annotations"]:
        entry.update(segmentation=mask, category_id=category["id"])
    file.write_text(json.dumps(value))
    references = json.loads(world.references.read_text())["annotations"]
    words = sorted({word for entry in references for word in entry["caption"].lower().split()})
    (given / "words.json").write_text(json.dumps({"categories": {category["name"]: words}}))
    data = ["--data", str(given / "data"), "--words", str(given / "words.json"), "--out", "out"]
    return f"mask {MASKS.index(mask)}", ["ground", *data, "--model", str(world.model)]


def _of_data(data: Path, world: World, random: Random) -> list[str]:
    model = ["--model", str(world.model), "--out", "out"]
    commands = (
        ["check", str(data)],
        ["evaluate", "--data", str(data), *model],
        ["ground", "--data", str(data), *model],
    )
    return random.choice(commands)


def _karpathy(value: dict[str, Any]) -> dict[str, Any]:
    sentences: dict[int, list[dict[str, Any]]] = {}
    for entry in value["annotations"]:
        sentences.setdefault(entry["image_id"], []).append({"raw": entry["caption"]})
    images = [
        {
            "filename": entry["file_name"],
            "imgid": entry["id"],
            "split": "val",
            "sentences": sentences[entry["id"]],
        }
        for entry in value["images"]
    ]
    return {"images": images, "dataset": "x"}


def _data_of_karpathy(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    (given / "images").symlink_to(world.shapes / "val")
    value = _karpathy(json.loads(world.references.read_text()))
    told = _write(given / "dataset_x.json", value, random)
    return f"Karpathy, {told}", _of_data(given, world, random)


def _table(world: World, given: Path, random: Random) -> tuple[str, list[str]]:
    """captions.csv or captions.jsonl."""
    value = json.loads(world.references.read_text())
    names = {entry["id"]: entry["file_name"] for entry in value["images"]}
    rows = [
        {"file_name": names[entry["image_id"]], "caption": entry["caption"], "split": "val"}
        for entry in value["annotations"]
    ]
    for name in names.values():
        (given / name).symlink_to(world.shapes / "val" / name)
    row = random.choice(rows)
    odd = ("", "a,b", '"', "x\ny", "\x1b[31m", "../../x", "\0", "=1+1", "/dev/zero", ".")
    row[random.choice(list(row))] = random.choice((*odd, "a" * 200_000))
    if random.random() < 0.5:
        lines = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
        file = given / "captions.csv"
    else:
        lines, file = [json.dumps(row) for row in rows], given / "captions.jsonl"
        if random.random() < 0.3:
            lines.append(random.choice(TEXTS))
    content = "\n".join(lines).encode(errors="surrogatepass")
    file.write_bytes(damaged(content, random) if random.random() < 0.5 else content)
    return f"{file.name}", _of_data(given, world, random)


TARGETS: dict[Callable[[World, Path, Random], tuple[str, list[str]]], float] = {
    _results: 14,
    _references: 16,
    _many_captions: 1,
    _frequencies: 8,
    _words: 10,
    _list: 10,
    _coco: 24,
    _data_of_karpathy: 8,
    _table: 14,
}
"""What is written, and how often."""

DOCUMENTS = Kind("documents", whole=500, tenth=50, case=_case)
