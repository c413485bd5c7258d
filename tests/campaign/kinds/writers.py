"""Every command that writes files, into the folder `OUT`, and what it writes when left alone."""

import os
import time
from functools import partial
from pathlib import Path

from tests.campaign.forks import Call
from tests.campaign.world import World

OUT = "out"
"""Where the commands write to, from the case's folder."""

SECONDS = "seconds"
"""The file beside `OUT` that says how long a command took."""

APART = ("wandb", ".filled")
"""Folders and files in `OUT` whose names differ from run to run, or that are not a command's."""


def calls(world: World) -> dict[str, Call]:
    """The commands by name; each may be given again."""
    model = ["--model", str(world.model)]
    photos = ["caption", *map(str, world.photos[:6]), *model]
    data = ["--data", str(world.shapes), *model]
    scored = ["score", str(world.results), str(world.references)]
    judged = ["judge", str(world.ratings), "--references", str(world.references)]
    train = ["train", "--config", str(world.config), "--overwrite"]
    train += ["--trainer.default_root_dir", OUT]
    finetune = ["finetune", str(world.shapes), *model, "--out", OUT, "--epochs", "1"]
    arguments = {
        "train": train,
        "train with loggers": [
            *(*train, "--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", OUT),
            *("--trainer.callbacks+=ModelCheckpoint", f"--trainer.callbacks.dirpath={OUT}/more"),
            *("--trainer.callbacks.save_top_k=-1", "--validation_table.images", "2"),
        ],
        "bulk": [*photos, "--shard-size", "2", "--batch-size", "2", "--out", OUT],
        "overlay": [*photos, "--overlay", OUT],
        "gif": [*photos, "--gif", OUT],
        "html": [*photos, "--html", OUT],
        "texts": [*photos, "--txt-dir", OUT, "--overwrite"],
        "csv": [*photos, "--csv", f"{OUT}/captions.csv"],
        "features": ["features", "--config", str(world.frozen), "--data.features", OUT],
        "report": [*scored, "--json", f"{OUT}/report.json"],
        "frequencies": [*scored, "--save-frequencies", f"{OUT}/frequencies.npz"],
        "judged": [*judged, "--json", f"{OUT}/judge.json", "--plot", f"{OUT}/judge.png"],
        "evaluate": ["evaluate", *data, "--out", OUT],
        "ground": ["ground", *data, "--out", OUT],
        "export": ["export", f"{OUT}/model.safetensors", *model],
        "shapes": ["shapes", OUT, "--train", "3", "--val", "2", "--test", "1"],
        "finetune": finetune,
    }
    found = {name: Call(each) for name, each in arguments.items()}
    offline = partial(os.environ.update, WANDB_MODE="offline")
    found["train with W&B"] = Call(train, before=offline)
    return found


def prepare(world: World) -> None:
    """Run every command alone, and keep how long it took and what it wrote."""
    from tests.campaign.forks import run

    for name, call in calls(world).items():
        folder = whole(world, name).parent
        if (folder / SECONDS).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        if call.before is not None:
            call.before()
        begun = time.monotonic()
        if run(call.arguments) != 0:
            raise RuntimeError(f"{name} failed with nothing in its way")
        os.environ["WANDB_MODE"] = "disabled"
        (folder / SECONDS).write_text(str(time.monotonic() - begun))


def whole(world: World, name: str) -> Path:
    """What a command wrote when left alone; as deep as a case's folder, for paths from there."""
    return world.folder / "cases" / f"whole-{name}" / OUT


def seconds(world: World, name: str) -> float:
    """How long a command took when left alone."""
    return float((whole(world, name).parent / SECONDS).read_text())


def missing(world: World, name: str, folder: Path) -> list[str]:
    """A fault for every file that a finished command should have written, but has not."""
    written = whole(world, name)
    names = [file.relative_to(written) for file in written.rglob("*") if file.is_file()]
    return [
        f"other: done, though {each} is missing"
        for each in sorted(names)
        if each.parts[0] not in APART and not (folder / each).exists()
    ]
