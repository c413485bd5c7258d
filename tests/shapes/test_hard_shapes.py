import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO

from captioning.cli import main
from captioning.shapes import (
    Background,
    Mark,
    Scene,
    Shape,
    Texture,
    box,
    captions,
    faults,
    mask,
    picture,
    random_hard_scene,
    random_scene,
    read_scenes,
    visible_masks,
    write_shapes,
)
from captioning.shapes.drawing import mark_mask
from captioning.shapes.patterns import PATTERNS, pattern_share
from captioning.shapes.random_scenes import VISIBLE
from captioning.shapes.scene import COLOURS, KINDS, MARKS, SIZES

GREY = Background("flat", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0.0, 0)
BEHIND = Shape("circle", "red", "large", 0.4, 0.5, 0.2)
BEFORE = Shape("square", "blue", "large", 0.6, 0.5, 0.2)
BAR = Mark("line", (1.0, 1.0, 1.0), 0.5, 0.5, 0.5, 0.1, 0.0, 0, in_front=True)

SCENES = [random_hard_scene(np.random.default_rng([7, index])) for index in range(30)]


def shares_seen(scene: Scene) -> list[float]:
    """How much of each object can be seen."""
    seen = visible_masks(scene, 96)
    return [
        float(found.sum() / mask(shape, 96).sum())
        for found, shape in zip(seen, scene.shapes, strict=True)
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hard")
    write_shapes(directory, train=12, val=2, test=1, pixels=64, progress=False, hard=True)
    return directory


def test_a_hard_scene_has_three_to_five_objects_and_clutter() -> None:
    assert {len(scene.shapes) for scene in SCENES} == {3, 4, 5}
    assert all(len(scene.clutter) >= 3 for scene in SCENES)
    assert {mark.kind for scene in SCENES for mark in scene.clutter} == set(MARKS)


def test_every_object_can_be_seen_for_the_most_part_and_many_are_partly_hidden() -> None:
    shares = [share for scene in SCENES for share in shares_seen(scene)]
    assert min(shares) > VISIBLE - 0.05  # counted on a coarser grid than here
    assert 0.1 < np.mean(np.array(shares) < 0.97) < 0.6


def test_every_caption_is_right_and_each_phrase_in_it_fits_one_object() -> None:
    rng = np.random.default_rng(0)
    phrase = rf"(?:({'|'.join(SIZES)}) )?({'|'.join(COLOURS)}) ({'|'.join(KINDS)})"
    for scene in SCENES:
        found = captions(scene, rng)
        assert len(set(found)) == 5
        for caption in found:
            assert faults(caption, scene) == (), caption
            assert 7 <= len(caption.split()) <= 20
            for size, colour, kind in re.findall(phrase, caption):
                fits = [
                    shape
                    for shape in scene.shapes
                    if (shape.colour, shape.kind) == (colour, kind) and size in ("", shape.size)
                ]
                assert len(fits) == 1, caption


def test_captions_name_several_objects_with_their_relations() -> None:
    rng = np.random.default_rng(0)
    named = Counter(
        sum(caption.count(kind) for kind in KINDS)
        for scene in SCENES
        for caption in captions(scene, rng)
    )
    assert named.keys() == {2, 3, 4, 5}


def test_a_later_object_hides_a_part_of_an_earlier_one() -> None:
    behind, before = visible_masks(Scene((BEHIND, BEFORE), GREY), 96)
    assert np.array_equal(before, mask(BEFORE, 96))
    assert np.array_equal(behind, mask(BEHIND, 96) & ~before)
    assert box(behind)[2] < box(mask(BEHIND, 96))[2]  # so its box ends where it is last seen


def test_marks_hide_objects_only_from_the_front() -> None:
    in_front = Scene((BEFORE,), GREY, (BAR,))
    behind = Scene((BEFORE,), GREY, (replace(BAR, in_front=False),))
    assert np.array_equal(visible_masks(behind, 96)[0], mask(BEFORE, 96))
    [seen] = visible_masks(in_front, 96)
    assert np.array_equal(seen, mask(BEFORE, 96) & ~mark_mask(BAR, 96))
    # The bar is a tenth of the picture wide, and the square 0.2 * sqrt(2) of it high.
    assert seen.sum() / mask(BEFORE, 96).sum() == pytest.approx(1 - 0.1 / 0.2828, abs=0.04)


def test_a_visible_mask_is_where_the_picture_changes_with_the_objects_colour() -> None:
    pixels = 96
    for scene in SCENES[:6]:
        plain = tuple(replace(shape, texture=None) for shape in scene.shapes)
        for number, seen in enumerate(visible_masks(scene, pixels)):
            red, blue = (
                picture(
                    replace(
                        scene,
                        shapes=(
                            *plain[:number],
                            replace(plain[number], colour=colour),
                            *plain[number + 1 :],
                        ),
                    ),
                    pixels,
                ).astype(int)
                for colour in ("red", "blue")
            )
            # The rim is darker than the rest, and its pixels count from half coverage on.
            changed = abs(red - blue).sum(axis=2) > 0.5 * 0.68 * (178 + 50 + 170)
            assert (changed & seen).sum() > 0.9 * (changed | seen).sum()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_has_both_of_its_colours_at_every_place_size(pattern: str) -> None:
    def shares(pixels: int) -> np.ndarray:
        place = (np.arange(pixels, dtype=np.float32) + 0.5) / pixels - 0.5
        return pattern_share(pattern, place[None], place[:, None], 0.3, 6.0, 1)

    fine = shares(192)
    assert fine.min() == 0
    assert fine.max() == 1
    assert 0.1 < fine.mean() < 0.9
    assert abs(fine.reshape(48, 4, 48, 4).mean(axis=(1, 3)) - shares(48)).mean() < 0.12


def test_a_texture_changes_the_object_and_nothing_else() -> None:
    textured = replace(BEFORE, texture=Texture("checks", 0.5, 10.0, 0.0, 0))
    plain, other = (picture(Scene((s,), GREY), 96).astype(int) for s in (BEFORE, textured))
    changed = (plain != other).any(axis=2)
    assert changed.sum() > 0.2 * mask(BEFORE, 96).sum()
    assert not (changed & ~mask(BEFORE, 96)).any()


def test_a_hard_scene_looks_the_same_at_every_pixel_size() -> None:
    for scene in SCENES[:5]:
        large = picture(scene, 192).reshape(48, 4, 48, 4, 3).mean(axis=(1, 3))
        assert abs(large - picture(scene, 48)).mean() < 6


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
def test_boxes_and_masks_are_of_the_visible_parts(drawn: Path) -> None:
    coco = COCO(drawn / "annotations" / "instances_train.json")
    hidden = 0
    for image_id, scene in read_scenes(drawn, "train").items():
        seen = visible_masks(scene, 64)
        for shape, visible, found in zip(
            scene.shapes, seen, coco.loadAnns(coco.getAnnIds(image_id)), strict=True
        ):
            assert np.array_equal(coco.annToMask(found).astype(bool), visible)
            assert tuple(found["bbox"]) == box(visible)
            assert found["area"] == visible.sum()
            hidden += visible.sum() < mask(shape, 64).sum()
    assert hidden


def test_easy_scenes_are_stored_without_empty_values(tmp_path: Path) -> None:
    write_shapes(tmp_path, train=1, val=1, test=1, pixels=32, progress=False)
    stored = json.loads((tmp_path / "annotations" / "scenes_train.json").read_text())["1"]
    assert stored.keys() == {"shapes", "background"}
    assert "texture" not in stored["shapes"][0]
    assert "hard" not in json.loads((tmp_path / "shapes.json").read_text())
    assert read_scenes(tmp_path, "train")[1] == random_scene(np.random.default_rng([0, 0, 0]))


def test_the_command_draws_hard_scenes(tmp_path: Path) -> None:
    counts = ["--train", "2", "--val", "1", "--test", "1", "--pixels", "32"]
    assert main(["shapes", str(tmp_path), "--hard", *counts]) == 0
    assert all(scene.clutter for scene in read_scenes(tmp_path, "train").values())
