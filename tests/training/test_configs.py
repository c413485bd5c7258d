import json
import re
from pathlib import Path

import pytest
import yaml

from captioning import shelf
from captioning.training.configuration import yaml_value
from captioning.training.train_cli import train
from tests.conftest import quick_ones, write_flickr8k
from tests.training.conftest import Patch

CONFIGS = sorted(shelf.CONFIGS.glob("*.yaml"))


@pytest.fixture(scope="session")
def flickr8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four photos in Flickr8k's own files."""
    folder = tmp_path_factory.mktemp("flickr8k")
    write_flickr8k(folder)
    return folder


def is_delta(config: Path) -> bool:
    """Whether it says nothing about where the photos are."""
    return "reader" not in yaml.safe_load(config.read_text()).get("data", {})


def bases_of(delta: Path) -> list[Path]:
    """The configurations that a delta changes: by the first parts of its name, or Flickr8k's."""
    parts = delta.stem.split("_")
    named = [delta.with_name("_".join(parts[:n]) + ".yaml") for n in range(1, len(parts))]
    return [path for path in named if path in CONFIGS] or [delta.with_name("flickr8k.yaml")]


def test_no_configuration_of_ours_has_an_alias() -> None:
    assert all(yaml_value(config.read_text()) for config in CONFIGS)


# The one that joins data sets runs every time.
@pytest.mark.parametrize(
    "config", quick_ones(CONFIGS, lambda path: path.stem == "photos"), ids=lambda path: path.stem
)
def test_each_configuration_runs(
    config: Path, flickr8k: Path, shapes_data: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    configs = [*bases_of(config), config] if is_delta(config) else [config]
    first, last = (yaml.safe_load(path.read_text()) for path in (configs[0], config))
    own_set, coco = (
        {"class_path": f"captioning.data.readers.{name}", "init_args": {"root": str(root)}}
        for name, root in (("Flickr8k", flickr8k), ("Coco", shapes_data))
    )
    joined = {"class_path": "captioning.data.readers.Joined", "init_args": {"readers": [coco]}}
    readers = [own_set, joined]
    arguments = {
        "Coco": f"root={shapes_data}",
        "Flickr8k": f"root={flickr8k}",
        "Joined": f"readers={json.dumps(readers)}",
    }
    kind = first["data"]["reader"]["class_path"].rpartition(".")[2]
    given = [f"--config={path}" for path in configs]
    given.append(f"--data.reader.init_args.{arguments[kind]}")
    given.append("--model.encoder.init_args.weights=null")
    given += ["--data.size=64", "--data.batch_size=2", "--data.workers=0", "--data.min_count=1"]
    if "crop" in first["data"] | last.get("data", {}):
        given.append("--data.crop=1")
    if "classes" in last.get("model", {}).get("objective", {}).get("init_args", {}):
        given.append("--model.objective.init_args.classes=0")  # which take weights
    if "initial" in last.get("model", {}):  # the file of the step before
        given.append("--model.initial=null")
    assert train([*given, "--trainer.fast_dev_run=2", "--trainer.accelerator=cpu"]) is None
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"runs"} if first["data"].get("features") else set())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_delta_tells_what_it_is_a_delta_of(config: Path) -> None:
    text = config.read_text()
    if is_delta(config):
        given = " ".join(f"--config configs/{path.name}" for path in [*bases_of(config), config])
        assert given in " ".join(re.sub(r"[#\\]", " ", text).split())


@pytest.mark.parametrize("name", ["coco", "photos"])
def test_long_trainings_of_an_encoder_are_in_single_precision(name: str) -> None:
    config = yaml.safe_load((shelf.CONFIGS / f"{name}.yaml").read_text())
    assert config["model"]["encoder"]["init_args"]["trainable_stages"] > 0
    assert config["trainer"]["precision"] == "32-true"
