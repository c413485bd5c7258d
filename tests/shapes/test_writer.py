"""The data set on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from captioning.errors import InputError
from captioning.shapes import (
    box,
    mask,
    picture,
    random_scene,
    read_scenes,
    write_shapes,
)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def draw(directory: Path, train: int = 3, seed: int = 0) -> Path:
    write_shapes(directory, train, val=2, test=1, pixels=48, seed=seed, progress=False)
    return directory


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("shapes"))


def test_the_same_seed_draws_the_same_bytes(drawn: Path, tmp_path: Path) -> None:
    before = contents(drawn)
    assert contents(draw(tmp_path / "again")) == before
    assert contents(draw(drawn)) == before


def test_a_scene_does_not_depend_on_how_many_are_drawn(drawn: Path, tmp_path: Path) -> None:
    draw(tmp_path, train=1)
    ((image_id, scene),) = read_scenes(tmp_path, "train").items()
    assert read_scenes(drawn, "train")[image_id] == scene
    assert scene == random_scene(np.random.default_rng([0, 0, 0]))
    assert read_scenes(drawn, "val") == read_scenes(tmp_path, "val")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
def test_coco_reads_boxes_and_masks(drawn: Path) -> None:
    coco = COCO(drawn / "annotations" / "instances_train.json")
    for image_id, scene in read_scenes(drawn, "train").items():
        annotations = coco.loadAnns(coco.getAnnIds(image_id))
        for shape, annotation in zip(scene.shapes, annotations, strict=True):
            covered = mask(shape, 48)
            assert np.array_equal(coco.annToMask(annotation).astype(bool), covered)
            assert tuple(annotation["bbox"]) == box(covered)
            assert annotation["area"] == covered.sum()
            assert coco.loadCats(annotation["category_id"])[0]["name"] == shape.kind
            assert annotation["attributes"] == {"colour": shape.colour, "size": shape.size}


def test_the_files_hold_the_pictures_of_the_scenes(drawn: Path) -> None:
    listed = json.loads((drawn / "annotations" / "captions_train.json").read_text())["images"]
    assert {path.name for path in (drawn / "train").iterdir()} == {
        image["file_name"] for image in listed
    }
    for image in listed:
        with Image.open(drawn / "train" / image["file_name"]) as stored:
            pixels = np.asarray(stored, dtype=int)
        drawing = picture(read_scenes(drawn, "train")[image["id"]], image["width"])
        assert np.abs(pixels - drawing).mean() < 3


def test_a_different_data_set_in_the_directory_is_refused(drawn: Path) -> None:
    before = contents(drawn)
    with pytest.raises(InputError, match="other settings; give a new folder"):
        draw(drawn, seed=1)
    assert contents(drawn) == before


def test_hard_scenes_of_earlier_versions_are_refused(tmp_path: Path) -> None:
    path = draw(tmp_path) / "annotations/scenes_val.json"
    scenes = json.loads(path.read_text())
    path.write_text(json.dumps({name: scene | {"clutter": []} for name, scene in scenes.items()}))
    with pytest.raises(InputError, match=r"scenes_val\.json: hard scenes were removed; draw plain"):
        read_scenes(tmp_path, "val")


@pytest.mark.integration
def test_processes_do_not_change_the_data_set(tmp_path: Path) -> None:
    for n in (1, 2):
        write_shapes(tmp_path / str(n), 60, 1, 1, pixels=32, progress=False, processes=n)
    one, two = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert len(one) > 60
    assert one == two
