"""Annotation vectors of mirrored images, computed once like those of the images."""

from pathlib import Path

import pytest
import yaml
from torch import Tensor

from captioning.commands import main
from captioning.data.dataset import CaptionDataset
from captioning.data.feature_cache import FeatureCache
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from tests.data.conftest import Caches

SEEDS = range(40)


@pytest.fixture
def images(shapes_records: list[Record]) -> list[Path]:
    return [record.image for record in shapes_records]


def seen(caches: Caches, image: Path, caption: str, mirror: bool = True) -> list[Tensor]:
    """What a training sees of an image in many epochs."""
    data = CaptionDataset(
        [Record(image, 1, (caption,))],
        Vocabulary(["dog"]),
        Preprocessing(32),
        features=caches[0],
        mirrored=caches[1] if mirror else None,
    )
    return [data[0, seed].image for seed in SEEDS]


def test_half_of_the_time_a_training_sees_the_mirrored_image(
    caches: Caches, images: list[Path]
) -> None:
    plain, mirrored = (cache[images[1]] for cache in caches)
    assert not plain.equal(mirrored)
    vectors = seen(caches, images[1], "a dog")
    assert 10 <= sum(found.equal(mirrored) for found in vectors) <= 30
    assert all(found.equal(mirrored) or found.equal(plain) for found in vectors)


def test_captions_of_left_or_right_are_seen_as_they_are(caches: Caches, images: list[Path]) -> None:
    vectors = seen(caches, images[1], "a dog to the left")
    assert all(found.equal(caches[0][images[1]]) for found in vectors)


def test_the_features_command_computes_both(tiny_config: Path, tmp_path: Path) -> None:
    config = yaml.safe_load(tiny_config.read_text())
    config["model"]["encoder"]["init_args"]["trainable_stages"] = 0
    config["data"] |= {"features": str(tmp_path / "features"), "mirror": True}
    path = tmp_path / "mirrored.yaml"
    path.write_text(yaml.safe_dump(config))
    assert main(["features", "--config", str(path)]) == 0
    plain, mirrored = (FeatureCache(tmp_path / name) for name in ("features", "features-mirrored"))
    assert plain.fingerprint != mirrored.fingerprint
    folder = ["--trainer.default_root_dir", str(tmp_path / "run")]
    assert main(["train", "--config", str(path), *folder]) == 0
