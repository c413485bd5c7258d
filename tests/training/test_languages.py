"""Models learn to caption drawn scenes in Japanese."""

import json
from itertools import permutations
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.evaluation.captions import split_captions
from captioning.shapes import read_scenes, write_shapes
from captioning.shapes.scene import CLEAR, Scene, Shape, relation
from captioning.training.train_cli import train

pytestmark = pytest.mark.integration

TRAIN, VAL, EPOCHS = 1000, 200, 6

JAPANESE = {
    **{"circle": "円", "square": "四角形", "triangle": "三角形", "star": "星", "cross": "十字"},
    **{"red": "赤い", "green": "緑の", "blue": "青い", "yellow": "黄色い", "purple": "紫の"},
    **{"orange": "オレンジ色の", "small": "小さな", "large": "大きな"},
    **{"left": "左", "right": "右", "above": "上", "below": "下"},
}


def japanese(one: Shape, other: Shape, side: str) -> str:
    first, second = (
        "".join(JAPANESE[word] for word in (shape.size, shape.colour, shape.kind))
        for shape in (one, other)
    )
    return f"{second}の{JAPANESE[side]}に{first}があります"


def true_captions(scene: Scene) -> list[str]:
    """A sentence for each two objects of a scene that are in a clear relation."""
    return [
        japanese(one, other, side)
        for one, other in permutations(scene.shapes, 2)
        if (side := relation(one, other, CLEAR))
    ]


def drawn(folder: Path) -> Path:
    """Drawn scenes whose captions are Japanese."""
    write_shapes(folder, train=TRAIN, val=VAL, test=1, progress=False)
    for split in ("train", "val", "test"):
        path = folder / f"annotations/captions_{split}.json"
        content = json.loads(path.read_text())
        texts = [
            (image, text)
            for image, scene in read_scenes(folder, split).items()
            for text in true_captions(scene)
        ]
        content["annotations"] = [
            {"id": number, "image_id": image, "caption": text}
            for number, (image, text) in enumerate(texts)
        ]
        path.write_text(json.dumps(content))
        for kind in ("instances", "scenes"):  # whose names are English
            path.with_name(f"{kind}_{split}.json").rename(folder / f"{kind}_{split}.json")
    return folder


@pytest.mark.parametrize("tokenizer", ["japanese", "characters"])
def test_japanese_captions_become_right(tokenizer: str, tmp_path: Path) -> None:
    folder = drawn(tmp_path / "scenes")
    options = {
        "data.reader.init_args.root": folder,
        "data.tokenizer": tokenizer,
        "data.features": tmp_path / "features",
        "data.batch_size": 16,
        "model.initial": "shapes",  # whose encoder knows the shapes
        "model.encoder.init_args.trainable_stages": 0,
        "model.search.init_args.max_length": 40,
        "trainer.default_root_dir": tmp_path,
        "trainer.max_epochs": EPOCHS,
        "trainer.check_val_every_n_epoch": EPOCHS,
        "trainer.accelerator": "cpu",
    }
    best = train(["--config", "shapes", *(f"--{name}={value}" for name, value in options.items())])
    assert best is not None
    records = Coco(folder, objects=False).read("val")
    captions = split_captions(load(best), records)
    assert captions is not None
    assert len(records) == VAL
    right = sum(captions[record.image_id] in record.captions for record in records) / VAL
    assert right > 0.6
