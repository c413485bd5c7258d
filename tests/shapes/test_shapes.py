import hashlib
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from captioning.errors import InputError
from captioning.shapes import (
    Background,
    Scene,
    Shape,
    box,
    captions,
    faults,
    mask,
    picture,
    random_scene,
    read_scenes,
    relation,
    write_shapes,
    writer,
)
from captioning.shapes.drawing import RGB
from captioning.shapes.language import BESIDE, OPPOSITE
from captioning.shapes.random_scenes import GAP, MARGIN
from captioning.shapes.scene import CLEAR, COLOURS, KINDS, SIZES

GREY = Background("flat", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0.0, 0)
CIRCLE = Shape("circle", "red", "small", 0.2, 0.3, 0.08)
SQUARE = Shape("square", "blue", "large", 0.7, 0.3, 0.16)
STAR = Shape("star", "green", "small", 0.2, 0.8, 0.1)
SCENE = Scene((CIRCLE, SQUARE, STAR), GREY)


def scenes(count: int) -> list[Scene]:
    return [random_scene(np.random.default_rng([7, index])) for index in range(count)]


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def draw(directory: Path, train: int = 3, seed: int = 0) -> None:
    write_shapes(directory, train=train, val=2, test=1, pixels=48, seed=seed, progress=False)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shapes")
    draw(directory)
    return directory


def test_objects_never_overlap() -> None:
    for scene in scenes(60):
        for one, two in combinations(scene.shapes, 2):
            distance = np.hypot(one.x - two.x, one.y - two.y)
            assert distance > one.radius + two.radius + GAP


def test_objects_lie_inside_the_usual_centre_crop() -> None:
    for scene in scenes(60):
        for shape in scene.shapes:
            for centre in (shape.x, shape.y):
                assert centre - shape.radius >= MARGIN
                assert centre + shape.radius <= 1 - MARGIN


def test_every_pair_is_in_a_clear_relation() -> None:
    for scene in scenes(60):
        assert all(relation(one, two, CLEAR) for one, two in combinations(scene.shapes, 2))


def test_no_two_objects_of_a_scene_are_alike() -> None:
    for scene in scenes(60):
        assert len({(s.kind, s.colour, s.size) for s in scene.shapes}) == len(scene.shapes)


def test_large_objects_cover_clearly_more_than_small_ones() -> None:
    areas: dict[str, list[int]] = {size: [] for size in SIZES}
    for scene in scenes(60):
        for shape in scene.shapes:
            areas[shape.size].append(int(mask(shape, 64).sum()))
    assert min(areas["large"]) > 1.25 * max(areas["small"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_covers_the_drawn_object(kind: str) -> None:
    shape = Shape(kind, "red", "large", 0.45, 0.55, 0.2, 0.2)
    empty, full = (picture(Scene(shapes, GREY), 96).astype(int) for shapes in ((), (shape,)))
    # The rim is darker than the rest, and its pixels count from half coverage on.
    threshold = 0.5 * 0.68 * (RGB["red"][0] - RGB["red"][2])
    reddened = full[..., 0] - full[..., 2] - empty[..., 0] + empty[..., 2] > threshold
    covered = mask(shape, 96)
    assert (reddened & covered).sum() > 0.95 * (reddened | covered).sum()


def test_an_object_has_its_colour() -> None:
    for scene in scenes(60):
        pixels = picture(scene, 64).astype(float)
        for shape in scene.shapes:
            mean = np.median(pixels[mask(shape, 64)], axis=0)
            assert min(RGB, key=lambda colour: np.abs(mean - RGB[colour]).sum()) == shape.colour


def test_no_background_is_as_colourful_as_an_object() -> None:
    for scene in scenes(60):
        assert np.ptp(picture(Scene((), scene.background), 32).astype(int), axis=2).max() < 60
    assert min(np.ptp(RGB[colour]) for colour in COLOURS) > 110


def test_a_scene_looks_the_same_at_every_pixel_size() -> None:
    large = Image.fromarray(picture(SCENE, 192)).reduce(4)
    difference = np.abs(np.asarray(large, dtype=int) - picture(SCENE, 48))
    assert difference.mean() < 2


def test_a_scene_has_five_different_captions_of_seven_to_fifteen_words_all_right() -> None:
    rng = np.random.default_rng(0)
    for scene in scenes(60):
        found = captions(scene, rng)
        assert len(set(found)) == 5
        for caption in found:
            assert faults(caption, scene) == (), caption
            assert 7 <= len(caption.split()) <= 15


def test_changing_any_one_attribute_of_a_caption_is_found() -> None:
    rng = np.random.default_rng(0)
    for scene in scenes(60):
        present = {word for s in scene.shapes for word in (s.kind, s.colour, s.size)}
        for caption in captions(scene, rng):
            words = caption.split()
            for place, word in enumerate(words):
                for family in (KINDS, COLOURS, SIZES):
                    wrong = next((other for other in family if other not in present), None)
                    if wrong and word.strip(",") in family:
                        assert faults(" ".join([*words[:place], wrong, *words[place + 1 :]]), scene)


def test_reversing_any_one_relation_of_a_caption_is_found() -> None:
    rng = np.random.default_rng(0)
    for scene in scenes(30):
        for caption in captions(scene, rng):
            for side, opposite in OPPOSITE.items():
                if side in caption:
                    assert faults(caption.replace(side, opposite, 1), scene), caption


def test_every_wrong_relation_is_found() -> None:
    for side, words in BESIDE.items():
        found = faults(f"a red circle {words} a blue square", SCENE)
        expected = (
            ()
            if side == "left"
            else (f"the small red circle is not {words} the large blue square",)
        )
        assert found == expected


@pytest.mark.parametrize(
    ("caption", "found"),
    [
        ("a large red circle above a star", ("the small red circle is called large",)),
        ("a green circle and a blue square", ("the small red circle is called green",)),
        ("two shapes, a circle and a star", ("counts 2 shapes where there are 3",)),
        ("three shapes, a circle and a star", ("counts 3 shapes and names 2",)),
        (
            "a circle and a square and a star",
            ("cannot be read as a statement about shapes: 'a circle and a square and a star'",),
        ),
        (
            "there is a circle, a square, a star and a cross",
            ("names 4 different shapes where there are 3",),
        ),
    ],
)
def test_a_fault_is_described_in_words(caption: str, found: tuple[str, ...]) -> None:
    assert faults(caption, SCENE) == found


@pytest.mark.parametrize("caption", ["", "a red", "red circle", "a man on a horse", "above above"])
def test_a_caption_that_states_nothing_is_a_fault(caption: str) -> None:
    assert "cannot be read" in faults(caption, SCENE)[0]


def test_one_object_named_as_two_is_a_fault() -> None:
    assert faults("a red circle above a red circle", SCENE)


def test_the_same_seed_draws_the_same_bytes(drawn: Path, tmp_path: Path) -> None:
    draw(tmp_path / "again")
    assert digests(tmp_path / "again") == digests(drawn)


def test_drawing_over_the_same_data_set_changes_nothing(drawn: Path) -> None:
    before = digests(drawn)
    draw(drawn)
    assert digests(drawn) == before


def test_a_scene_does_not_depend_on_how_many_are_drawn(drawn: Path, tmp_path: Path) -> None:
    draw(tmp_path, train=1)
    ((image_id, scene),) = read_scenes(tmp_path, "train").items()
    assert read_scenes(drawn, "train")[image_id] == scene
    assert read_scenes(drawn, "val") == read_scenes(tmp_path, "val")


def test_scenes_are_read_back_exactly(drawn: Path) -> None:
    rng = np.random.default_rng([0, 0, 0])
    assert read_scenes(drawn, "train")[1] == random_scene(rng)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
def test_coco_reads_boxes_and_masks_that_fit_the_scenes(drawn: Path) -> None:
    coco = COCO(drawn / "annotations" / "instances_train.json")
    for image_id, scene in read_scenes(drawn, "train").items():
        for shape, found in zip(scene.shapes, coco.loadAnns(coco.getAnnIds(image_id)), strict=True):
            assert np.array_equal(coco.annToMask(found).astype(bool), mask(shape, 48))
            assert tuple(found["bbox"]) == box(mask(shape, 48))
            assert coco.loadCats(found["category_id"])[0]["name"] == shape.kind
            assert found["attributes"] == {"colour": shape.colour, "size": shape.size}


def test_the_files_hold_the_pictures_of_the_scenes(drawn: Path) -> None:
    listed = json.loads((drawn / "annotations" / "captions_train.json").read_text())["images"]
    assert sorted(path.name for path in (drawn / "train").iterdir()) == sorted(
        image["file_name"] for image in listed
    )
    for image in listed:
        with Image.open(drawn / "train" / image["file_name"]) as stored:
            pixels = np.asarray(stored, dtype=int)
        drawing = picture(read_scenes(drawn, "train")[image["id"]], image["width"])
        assert np.abs(pixels - drawing).mean() < 3


def test_an_interrupted_run_leaves_no_annotations_and_can_be_repeated(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path, value: object) -> None:
        if "scenes_test" in path.name:
            raise KeyboardInterrupt
        write_json(path, value)

    write_json = writer.write_json
    monkeypatch.setattr(writer, "write_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        draw(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"shapes.json", "train", "val", "test"}
    monkeypatch.undo()
    draw(tmp_path)
    assert digests(tmp_path) == digests(drawn)


def test_a_different_data_set_in_the_directory_is_refused(drawn: Path) -> None:
    before = digests(drawn)
    with pytest.raises(InputError, match="other settings; choose a new folder"):
        draw(drawn, seed=1)
    assert digests(drawn) == before


def test_a_number_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seed: give a whole number from 0 to .*, not -1"):
        draw(tmp_path, seed=-1)


@pytest.mark.integration
def test_processes_do_not_change_the_data_set(tmp_path: Path) -> None:
    for folder, processes in (("one", 1), ("two", 2)):
        counts = {"train": 60, "val": 1, "test": 1}
        write_shapes(tmp_path / folder, **counts, pixels=32, progress=False, processes=processes)
    one, two = (
        {file.relative_to(tmp_path / folder): file.read_bytes() for file in found if file.is_file()}
        for folder in ("one", "two")
        for found in [(tmp_path / folder).rglob("*")]
    )
    assert len(one) > 60
    assert one == two


@pytest.mark.integration
def test_a_process_that_cannot_write_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "shapes" / "train" / "000000000001.jpg").mkdir(parents=True)
    (tmp_path / "shapes" / "shapes.json").write_text(
        json.dumps({"shapes": 1, "train": 1, "val": 1, "test": 1, "pixels": 32, "seed": 0})
    )
    with pytest.raises(InputError, match=r"shapes: cannot be written \(Is a directory\)"):
        write_shapes(tmp_path / "shapes", 1, 1, 1, pixels=32, progress=False, processes=2)
