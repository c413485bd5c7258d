"""Tutorial, how-to and extending pages: their commands and code run as they stand there."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from captioning import maps, shelf
from captioning.commands import main
from captioning.data.records import Record
from captioning.metrics import registry
from tests.conftest import draw_photos, write_flickr8k

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
EXTENDING = sorted((DOCS / "extending").glob("*.md"))
PAGES = [
    DOCS / "tutorial.md",
    DOCS / "configuration.md",
    *sorted((DOCS / "how-to").glob("*.md")),
    *EXTENDING,
]
CONFIGS = sorted(shelf.CONFIGS.glob("*.yaml"))

SHOWN_ONLY = {"index", "serve", "wandb"}
"""Pages all of whose commands need a network, an account or several GPUs, or never end."""

COMMANDS = {
    "map": {"caption", "ground"},
    "metric": {"train", "evaluate", "score"},
    "reader": {"train", "caption"},
    "attention": {"train", "caption", "ground"},
    "decoder": {"train", "caption", "ground"},
    "encoder": {"train", "caption", "ground"},
    "tutorial": {"train", "evaluate"},
    "train": {"train", "evaluate"},
}
"""Commands that must be among those of a page."""

PHOTOS = (
    *("photo.jpg", "photos/a.jpg", "photos/b.jpg"),
    *("photos/a_red_circle.jpg", "photos/a_blue_star.jpg", "photos/a_cross.jpg"),
)

SMALLER = {
    "shapes": ["--train", "6", "--val", "4", "--test", "2", "--pixels", "48"],
    "train": ["--overwrite"],  # of the checkpoints that the pages begin with
    "finetune": ["--epochs", "1", "--model", "shapes"],
}
"""What commands are given besides what a page says, so that they take no time."""

SIZES = {
    "adapter": {"projection_dim": 8, "region_layers": 1, "region_heads": 2},
    "decoder": {
        **{"embedding_dim": 8, "hidden_dim": 8, "attention_dim": 8},
        **{"width": 8, "layers": 2, "heads": 2, "inner_width": 8},
    },
    "search": {"width": 2, "max_length": 6},
}


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The same experiment at sizes of a second, without downloads."""
    model, trainer = config.get("model", {}), config["trainer"]
    if "data" in config:
        config["data"] |= {"size": 64, "batch_size": 2, "min_count": 1, "workers": 0}
        if "crop" in config["data"]:
            config["data"]["crop"] = 2
    if "encoder" in model:
        encoder = model["encoder"]["init_args"]
        encoder["weights"] = None
        if encoder.get("backbone") in ("resnet101", "vgg19"):  # hundreds of megabytes
            encoder |= {"backbone": "mobilenet_v2", "grid": 2}
    for part, sizes in SIZES.items():
        if part in model:
            given = model[part]["init_args"]
            given |= {name: size for name, size in sizes.items() if name in given}
    if "LSTM" in model.get("decoder", {}).get("class_path", ""):
        model["decoder"]["init_args"]["hidden_dim"] = 8
    objective = model.get("objective", {}).get("init_args", {})
    if "classes" in objective:  # which take weights
        objective["classes"] = 0.0
    trainer |= {"max_epochs": 1, "check_val_every_n_epoch": 1, "accelerator": "cpu"}
    return config


@pytest.fixture
def world(
    tmp_path: Path,
    checkpoint: Path,
    shapes_data: Path,
    shapes_records: list[Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder with all that the pages speak of, small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which `--import` adds the working folder
    Path("configs").mkdir()
    for config in CONFIGS:
        smaller = shrunk(yaml.safe_load(config.read_text()))
        Path("configs", config.name).write_text(yaml.safe_dump(smaller))
    for run in ("quickstart", "shapes"):
        Path("runs", run).mkdir(parents=True)
        shutil.copy(checkpoint, Path("runs", run, "best.ckpt"))
    Path("photos").mkdir()
    for name, record in zip(PHOTOS, shapes_records, strict=False):
        shutil.copy(record.image, name)
    Path("photos.txt").write_text("\n".join(PHOTOS[:3]))
    shutil.copytree(shapes_data, "COCO")
    write_flickr8k(Path("FLICKR8K"))


def fences(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of code."""
    tokens = MarkdownIt().parse(page.read_text())
    return [(token.info.strip(), token.content) for token in tokens if token.type == "fence"]


def commands(block: str) -> Iterator[list[str]]:
    """The arguments of each `captioning` of a block; nothing else may stand in one."""
    for line in block.replace("\\\n", " ").splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "captioning", f"{line}: not a command of ours; show it as a console"
        yield arguments


def run_page(page: Path) -> list[list[str]]:
    """Run a page from top to bottom in the working folder; returns the commands that ran.

    Python runs as it stands; it is written to a file instead where its first line is a comment of
    nothing but the file's name, as is YAML. A page's words for `captioning ground` and its table of
    photos are written where its commands look for them.
    """
    ran: list[list[str]] = []
    names: dict[str, Any] = {}
    for language, text in fences(page):
        file = re.match(r"# (\w+\.(?:py|yaml))\n", text)
        if file and language in ("python", "yaml"):
            Path(file[1]).write_text(text)
            sys.modules.pop(Path(file[1]).stem, None)  # another page's module of that name
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "json" and "categories" in json.loads(text):
            Path("words.json").write_text(text)
        elif language == "text" and text.startswith("file_name,caption\n"):
            write_photos(Path("my-photos"), text)
        elif language == "bash":
            for arguments in commands(text):
                assert main([*arguments, *SMALLER.get(arguments[0], [])]) == 0, arguments
                ran.append(arguments)
    return ran


def write_photos(folder: Path, table: str) -> None:
    """A folder of photos with its table of captions."""
    draw_photos(folder, *sorted({line.partition(",")[0] for line in table.splitlines()[1:]}))
    (folder / "captions.csv").write_text(table)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_runs_from_top_to_bottom(
    page: Path,
    world: None,
    tiny_config: Path,
    shapes_data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "METRICS", registry.METRICS[:])
    monkeypatch.setitem(maps.MAPS, "sharp", None)  # a page sets it; this removes it afterwards
    del maps.MAPS["sharp"]
    if page.stem != "tutorial":  # which draws them itself
        shutil.copytree(shapes_data, "data/shapes")
    if page in EXTENDING:
        shutil.copy(tiny_config, "configs/shapes.yaml")
    ran = {arguments[0] for arguments in run_page(page)}
    assert bool(ran) == (page.stem not in SHOWN_ONLY | {"python"})
    assert ran >= COMMANDS.get(page.stem, set())
