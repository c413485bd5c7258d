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
    visible_masks,
    write_shapes,
)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def draw(directory: Path, train: int = 3, seed: int = 0, hard: bool = False) -> Path:
    write_shapes(directory, train, val=2, test=1, pixels=48, seed=seed, progress=False, hard=hard)
    return directory


@pytest.fixture(scope="module", params=[False, True], ids=["easy", "hard"])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("shapes"), train=8, hard=request.param)


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("shapes"))


def test_the_same_seed_draws_the_same_bytes(easy: Path, tmp_path: Path) -> None:
    before = contents(easy)
    assert contents(draw(tmp_path / "again")) == before
    assert contents(draw(easy)) == before


def test_a_scene_does_not_depend_on_how_many_are_drawn(easy: Path, tmp_path: Path) -> None:
    draw(tmp_path, train=1)
    ((image_id, scene),) = read_scenes(tmp_path, "train").items()
    assert read_scenes(easy, "train")[image_id] == scene
    assert scene == random_scene(np.random.default_rng([0, 0, 0]))
    assert read_scenes(easy, "val") == read_scenes(tmp_path, "val")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
def test_coco_reads_boxes_and_masks_of_the_visible_parts(drawn: Path) -> None:
    coco = COCO(drawn / "annotations" / "instances_train.json")
    hidden = 0
    for image_id, scene in read_scenes(drawn, "train").items():
        annotations = coco.loadAnns(coco.getAnnIds(image_id))
        for shape, seen, found in zip(
            scene.shapes, visible_masks(scene, 48), annotations, strict=True
        ):
            assert np.array_equal(coco.annToMask(found).astype(bool), seen)
            assert tuple(found["bbox"]) == box(seen)
            assert found["area"] == seen.sum()
            assert coco.loadCats(found["category_id"])[0]["name"] == shape.kind
            assert found["attributes"] == {"colour": shape.colour, "size": shape.size}
            hidden += seen.sum() < mask(shape, 48).sum()
    assert bool(hidden) == any(scene.clutter for scene in read_scenes(drawn, "train").values())


def test_the_files_hold_the_pictures_of_the_scenes(easy: Path) -> None:
    listed = json.loads((easy / "annotations" / "captions_train.json").read_text())["images"]
    assert {path.name for path in (easy / "train").iterdir()} == {
        image["file_name"] for image in listed
    }
    for image in listed:
        with Image.open(easy / "train" / image["file_name"]) as stored:
            pixels = np.asarray(stored, dtype=int)
        drawing = picture(read_scenes(easy, "train")[image["id"]], image["width"])
        assert np.abs(pixels - drawing).mean() < 3


def test_a_different_data_set_in_the_directory_is_refused(easy: Path) -> None:
    before = contents(easy)
    with pytest.raises(InputError, match="other settings; give a new folder"):
        draw(easy, seed=1)
    assert contents(easy) == before


@pytest.mark.integration
def test_processes_do_not_change_the_data_set(tmp_path: Path) -> None:
    for n in (1, 2):
        write_shapes(tmp_path / str(n), 60, 1, 1, pixels=32, progress=False, processes=n)
    one, two = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert len(one) > 60
    assert one == two
