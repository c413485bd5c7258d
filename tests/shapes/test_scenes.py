"""Random scenes, their pictures and their captions."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from captioning.shapes import (
    Background,
    Mark,
    Scene,
    Shape,
    Texture,
    captions,
    is_right,
    mask,
    picture,
    random_hard_scene,
    random_scene,
    relation,
    visible_masks,
)
from captioning.shapes.drawing import RGB
from captioning.shapes.language import OPPOSITE
from captioning.shapes.random_scenes import GAP, MARGIN, VISIBLE
from captioning.shapes.scene import CLEAR, COLOURS, KINDS, MARKS, SIZES

GREY = Background("flat", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0.0, 0)
CIRCLE = Shape("circle", "red", "small", 0.2, 0.3, 0.08)
SQUARE = Shape("square", "blue", "large", 0.7, 0.3, 0.16)
STAR = Shape("star", "green", "small", 0.2, 0.8, 0.1)
SCENE = Scene((CIRCLE, SQUARE, STAR), GREY)
BEFORE = Shape("square", "blue", "large", 0.6, 0.5, 0.2)


def drawn(make: Callable[[np.random.Generator], Scene], count: int) -> list[Scene]:
    return [make(np.random.default_rng([7, index])) for index in range(count)]


EASY, HARD = drawn(random_scene, 60), drawn(random_hard_scene, 30)


def test_objects_of_an_easy_scene_lie_apart_in_clear_relations() -> None:
    for scene in EASY:
        for one, two in combinations(scene.shapes, 2):
            distance = np.hypot(one.x - two.x, one.y - two.y)
            assert distance > one.radius + two.radius + GAP
            assert relation(one, two, CLEAR)


@pytest.mark.parametrize("scenes", [EASY, HARD], ids=["easy", "hard"])
def test_objects_differ_and_lie_within_the_centre_crop(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert len({(s.kind, s.colour, s.size) for s in scene.shapes}) == len(scene.shapes)
        for shape in scene.shapes:
            for centre in (shape.x, shape.y):
                assert centre - shape.radius >= MARGIN
                assert centre + shape.radius <= 1 - MARGIN


def test_large_objects_cover_clearly_more_than_small_ones() -> None:
    areas: dict[str, list[int]] = {size: [] for size in SIZES}
    for scene in EASY:
        for shape in scene.shapes:
            areas[shape.size].append(int(mask(shape, 64).sum()))
    assert min(areas["large"]) > 1.25 * max(areas["small"])


def test_hard_scenes_have_clutter_and_partly_hidden_objects() -> None:
    assert {len(scene.shapes) for scene in HARD} == {3, 4, 5}
    assert {mark.kind for scene in HARD for mark in scene.clutter} == set(MARKS)
    shares = np.array(
        [
            seen.sum() / mask(shape, 96).sum()
            for scene in HARD
            for seen, shape in zip(visible_masks(scene, 96), scene.shapes, strict=True)
        ]
    )
    assert shares.min() > VISIBLE - 0.05  # counted on a coarser grid than here
    assert 0.1 < np.mean(shares < 0.97) < 0.6


def test_a_visible_mask_is_where_a_colour_can_be_seen() -> None:
    alone = [Scene((replace(BEFORE, kind=kind, angle=0.2),), GREY) for kind in KINDS]
    for scene, least in [*((scene, 0.95) for scene in alone), *((s, 0.9) for s in HARD[:8])]:
        plain = [replace(shape, texture=None) for shape in scene.shapes]
        for number, seen in enumerate(visible_masks(scene, 96)):
            pictures = []
            for colour in ("red", "blue"):
                plain[number] = replace(plain[number], colour=colour)
                pictures.append(picture(replace(scene, shapes=tuple(plain)), 96).astype(int))
            # The rim is darker than the rest, and its pixels count from half coverage on.
            changed = abs(pictures[0] - pictures[1]).sum(axis=2) > 0.5 * 0.68 * (178 + 50 + 170)
            assert (changed & seen).sum() > least * (changed | seen).sum()


def test_objects_have_their_colours_and_backgrounds_none() -> None:
    for scene in EASY:
        pixels = picture(scene, 64).astype(float)
        for shape in scene.shapes:
            mean = np.median(pixels[mask(shape, 64)], axis=0)
            assert min(RGB, key=lambda colour: np.abs(mean - RGB[colour]).sum()) == shape.colour
        assert np.ptp(picture(Scene((), scene.background), 32).astype(int), axis=2).max() < 60
    assert min(np.ptp(RGB[colour]) for colour in COLOURS) > 110


@pytest.mark.parametrize("scene", [SCENE, *HARD[:3]], ids=["easy", "hard", "hard", "hard"])
def test_a_scene_looks_the_same_at_every_size(scene: Scene) -> None:
    large = picture(scene, 192).reshape(48, 4, 48, 4, 3).mean(axis=(1, 3))
    assert abs(large - picture(scene, 48)).mean() < 6


def test_a_texture_changes_the_object_and_nothing_else() -> None:
    textured = replace(BEFORE, texture=Texture("checks", 0.5, 10.0, 0.0, 0))
    plain, other = (picture(Scene((s,), GREY), 96).astype(int) for s in (BEFORE, textured))
    changed = (plain != other).any(axis=2)
    assert changed.sum() > 0.2 * mask(BEFORE, 96).sum()
    assert not (changed & ~mask(BEFORE, 96)).any()


@pytest.mark.parametrize("in_front", [True, False])
def test_marks_hide_objects_only_from_the_front(in_front: bool) -> None:
    bar = Mark("line", (1.0, 1.0, 1.0), 0.5, 0.5, 0.5, 0.1, 0.0, 0, in_front)
    [seen] = visible_masks(Scene((BEFORE,), GREY, (bar,)), 96)
    whole = mask(BEFORE, 96)
    assert not (seen & ~whole).any()
    assert seen.sum() < 0.8 * whole.sum() if in_front else np.array_equal(seen, whole)


@pytest.mark.parametrize(("scenes", "longest"), [(EASY, 15), (HARD, 20)], ids=["easy", "hard"])
def test_captions_are_right_and_their_phrases_unambiguous(
    scenes: list[Scene], longest: int
) -> None:
    rng, named = np.random.default_rng(0), Counter[int]()
    phrase = rf"(?:({'|'.join(SIZES)}) )?({'|'.join(COLOURS)}) ({'|'.join(KINDS)})"
    for scene in scenes:
        found = captions(scene, rng)
        assert len(set(found)) == 5
        for caption in found:
            assert is_right(caption, scene), caption
            assert 7 <= len(caption.split()) <= longest
            phrases = re.findall(phrase, caption)
            named[len(phrases)] += 1
            for size, colour, kind in phrases:
                fits = [s for s in scene.shapes if (s.colour, s.kind) == (colour, kind)]
                assert len([s for s in fits if size in ("", s.size)]) == 1, caption
    assert named.keys() == set(range(2, max(len(scene.shapes) for scene in scenes) + 1))


@pytest.mark.parametrize("scenes", [EASY, HARD], ids=["easy", "hard"])
def test_any_one_changed_attribute_or_relation_is_found(scenes: list[Scene]) -> None:
    rng = np.random.default_rng(0)
    for scene in scenes[:20]:
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
