from pathlib import Path

import pytest
import yaml
from PIL import Image

from captioning.training.train_cli import train

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.fixture(scope="session")
def flickr8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four photos in Flickr8k's own files."""
    folder = tmp_path_factory.mktemp("flickr8k")
    (folder / "Images").mkdir()
    for number in range(4):
        Image.effect_noise((40, 30), 60 + number).save(folder / f"Images/{number}.jpg")
    captions = [f"{number}.jpg#{n}\tA dog number {n} ." for number in range(4) for n in range(5)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(captions))
    (folder / "Flickr_8k.trainImages.txt").write_text("0.jpg\n1.jpg\n2.jpg\n")
    (folder / "Flickr_8k.devImages.txt").write_text("3.jpg\n")
    return folder


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_each_configuration_runs(
    config: Path,
    flickr8k: Path,
    shapes_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    configs = [config]
    if "data" not in yaml.safe_load(config.read_text()):  # a delta
        own = config.with_name(f"{config.stem.partition('_')[0]}.yaml")  # such as shapes_hard's
        configs.insert(0, own if own.exists() else config.with_name("flickr8k.yaml"))
    whole = yaml.safe_load(configs[0].read_text())
    kind = whole["data"]["reader"]["class_path"].rpartition(".")[2]
    root = {"Coco": shapes_data, "Flickr8k": flickr8k}[kind]
    smaller = ["--data.size=64", "--data.batch_size=2", "--data.workers=0", "--data.min_count=1"]
    local = ["--model.encoder.init_args.weights=null", f"--data.reader.init_args.root={root}"]
    trial = ["--trainer.fast_dev_run=true", "--trainer.accelerator=cpu"]
    given = [f"--config={path}" for path in configs]
    assert train([*given, *smaller, *local, *trial]) is None
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"runs"} if whole["data"].get("features") else set())
