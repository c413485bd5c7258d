"""Random scenes, their pictures and their captions."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from captioning.shapes import (
    Background,
    Scene,
    Shape,
    captions,
    is_right,
    mask,
    picture,
    random_scene,
    relation,
)
from captioning.shapes.drawing import RGB
from captioning.shapes.language import OPPOSITE
from captioning.shapes.random_scenes import BORDER, MIN_GAP
from captioning.shapes.scene import CLEAR, COLOURS, KINDS, SIZES

GREY = Background("flat", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0.0, 0)
CIRCLE = Shape("circle", "red", "small", 0.2, 0.3, 0.08)
SQUARE = Shape("square", "blue", "large", 0.7, 0.3, 0.16)
STAR = Shape("star", "green", "small", 0.2, 0.8, 0.1)
SCENE = Scene((CIRCLE, SQUARE, STAR), GREY)


SCENES = [random_scene(np.random.default_rng([7, index])) for index in range(60)]


def test_objects_lie_apart_in_clear_relations() -> None:
    for scene in SCENES:
        for one, two in combinations(scene.shapes, 2):
            distance = np.hypot(one.x - two.x, one.y - two.y)
            assert distance > one.radius + two.radius + MIN_GAP
            assert relation(one, two, CLEAR)


def test_objects_differ_and_lie_within_the_centre_crop() -> None:
    for scene in SCENES:
        assert len({(s.kind, s.colour, s.size) for s in scene.shapes}) == len(scene.shapes)
        for shape in scene.shapes:
            for centre in (shape.x, shape.y):
                assert centre - shape.radius >= BORDER
                assert centre + shape.radius <= 1 - BORDER


def test_large_objects_cover_clearly_more_than_small_ones() -> None:
    areas: dict[str, list[int]] = {size: [] for size in SIZES}
    for scene in SCENES:
        for shape in scene.shapes:
            areas[shape.size].append(int(mask(shape, 64).sum()))
    assert min(areas["large"]) > 1.25 * max(areas["small"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_where_a_colour_can_be_seen(kind: str) -> None:
    shape = Shape(kind, "red", "large", 0.6, 0.5, 0.2, 0.2)
    covered = mask(shape, 96)
    red, blue = (
        picture(Scene((replace(shape, colour=colour),), GREY), 96).astype(int)
        for colour in ("red", "blue")
    )
    # The rim is darker than the rest, and its pixels count from half coverage on.
    changed = abs(red - blue).sum(axis=2) > 0.5 * 0.68 * (178 + 50 + 170)
    assert (changed & covered).sum() > 0.95 * (changed | covered).sum()


def test_objects_have_their_colours_and_backgrounds_none() -> None:
    for scene in SCENES:
        pixels = picture(scene, 64).astype(float)
        for shape in scene.shapes:
            mean = np.median(pixels[mask(shape, 64)], axis=0)
            assert min(RGB, key=lambda colour: np.abs(mean - RGB[colour]).sum()) == shape.colour
        assert np.ptp(picture(Scene((), scene.background), 32).astype(int), axis=2).max() < 60
    assert min(np.ptp(RGB[colour]) for colour in COLOURS) > 110


@pytest.mark.parametrize("scene", [SCENE, *SCENES[:3]])
def test_a_scene_looks_the_same_at_every_size(scene: Scene) -> None:
    large = picture(scene, 192).reshape(48, 4, 48, 4, 3).mean(axis=(1, 3))
    assert abs(large - picture(scene, 48)).mean() < 6


def test_captions_are_right_and_their_phrases_unambiguous() -> None:
    rng, named = np.random.default_rng(0), Counter[int]()
    phrase = rf"(?:({'|'.join(SIZES)}) )?({'|'.join(COLOURS)}) ({'|'.join(KINDS)})"
    for scene in SCENES:
        found = captions(scene, rng)
        assert len(set(found)) == 5
        for caption in found:
            assert is_right(caption, scene), caption
            assert 7 <= len(caption.split()) <= 15
            phrases = re.findall(phrase, caption)
            named[len(phrases)] += 1
            for size, colour, kind in phrases:
                fits = [s for s in scene.shapes if (s.colour, s.kind) == (colour, kind)]
                assert len([s for s in fits if size in ("", s.size)]) == 1, caption
    assert named.keys() == {2, 3}


def test_any_one_changed_attribute_or_relation_is_found() -> None:
    rng = np.random.default_rng(0)
    for scene in SCENES[:20]:
        present = {word for s in scene.shapes for word in (s.kind, s.colour, s.size)}
        for caption in captions(scene, rng):
            for side, opposite in OPPOSITE.items():
                if side in caption:
                    assert not is_right(caption.replace(side, opposite, 1), scene), caption
            words = caption.split()
            for place, word in enumerate(words):
                for family in (KINDS, COLOURS, SIZES):
                    wrong = next((other for other in family if other not in present), None)
                    if wrong and word.strip(",") in family:
                        changed = [*words[:place], wrong, *words[place + 1 :]]
                        assert not is_right(" ".join(changed), scene)


@pytest.mark.parametrize(
    ("caption", "right"),
    [
        ("A red circle to the left of a blue square.", True),
        ("a red circle below a blue square", False),
        ("a large red circle above a star", False),
        ("a red circle above a red circle", False),
        ("three shapes, a circle, a star and a square", True),
        ("two shapes, a circle and a star", False),
        ("three shapes, a circle and a star", False),
        ("there is a circle, a square, a star and a cross", False),
        ("a circle and a square and a star", False),
        ("a man", False),
    ],
)
def test_a_caption_is_right_or_wrong(caption: str, right: bool) -> None:
    assert is_right(caption, SCENE) == right
