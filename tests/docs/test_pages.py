"""Tutorial, how-to pages and configurations: commands and code run as they stand there."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from captioning import shelf
from captioning.data.records import Record
from tests.docs.pages import DOCS, blocks, run_page

CONFIGS = sorted(shelf.CONFIGS.glob("*.yaml"))
PAGES = [
    DOCS / "tutorial.md",
    DOCS / "configuration.md",
    *sorted((DOCS / "how-to").glob("*.md")),
]
pytestmark = pytest.mark.integration

SHOWN_ONLY = {"index", "serve", "several-processes", "wandb"}
"""Pages all of whose commands need a network, an account or several GPUs, or never end."""

PHOTOS = ("photo.jpg", "photos/a.jpg", "photos/b.jpg")

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
        if encoder["backbone"] in ("resnet101", "vgg19"):  # hundreds of megabytes
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
    if model.get("then"):
        model["then"] = None  # one epoch has no room for two objectives
    trainer |= {"max_epochs": 1, "check_val_every_n_epoch": 1, "accelerator": "cpu"}
    return config


@pytest.fixture
def world(
    tmp_path: Path,
    checkpoint: Path,
    shapes_data: Path,
    shapes_records: list[Record],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
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
    Path("photos.txt").write_text("\n".join(PHOTOS))
    shutil.copytree(shapes_data, "COCO")
    Path("FLICKR8K/Images").mkdir(parents=True)
    for number in range(4):
        photo = Image.effect_noise((64, 48), 60 + number).convert("RGB")
        photo.save(f"FLICKR8K/Images/{number}.jpg")
    captions = [f"{i}.jpg#{n}\tDog {n} of photo {i} ." for i in range(4) for n in range(5)]
    Path("FLICKR8K/Flickr8k.token.txt").write_text("\n".join(captions))
    Path("FLICKR8K/ExpertAnnotations.txt").write_text(
        "0.jpg\t1.jpg#0\t1\t1\t2\n0.jpg\t0.jpg#1\t4\t4\t4\n2.jpg\t0.jpg#3\t2\t1\t3\n"
    )
    Path("FLICKR8K/CrowdFlowerAnnotations.txt").write_text(
        "0.jpg\t1.jpg#0\t0\t0\t3\n0.jpg\t0.jpg#1\t1\t3\t0\n"
    )
    Path("FLICKR8K/Flickr_8k.trainImages.txt").write_text("0.jpg\n1.jpg\n2.jpg\n")
    Path("FLICKR8K/Flickr_8k.devImages.txt").write_text("3.jpg\n")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_runs_from_top_to_bottom(page: Path, world: Path, shapes_data: Path) -> None:
    if page.stem != "tutorial":  # which draws them itself
        shutil.copytree(shapes_data, "data/shapes")
    ran = run_page(page)
    assert bool(ran) == (page.stem not in SHOWN_ONLY | {"python"})
    if page.stem in ("tutorial", "train", "self-critical"):
        assert {"train", "evaluate"} <= {arguments[0] for arguments in ran}
    if page.stem == "many-photos":
        assert len(Path("captions/captions-00000.jsonl").read_text().splitlines()) == 2
        assert len(list(Path("listed").glob("captions-*.jsonl"))) == 2


def test_pages_that_are_only_shown_have_consoles() -> None:
    for name in SHOWN_ONLY - {"index"}:
        assert blocks(DOCS / "how-to" / f"{name}.md", "console"), name
