"""The shapes data set on disk, in COCO's layout."""

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from PIL import Image
from pycocotools import mask as run_length

from captioning.errors import InputError, as_input_error
from captioning.files import write_json
from captioning.numbers import ProcessCount, ScenePixels, Scenes, Seed, check
from captioning.progress_bar import ProgressBar
from captioning.shapes.drawing import box, picture, visible_masks
from captioning.shapes.language import captions
from captioning.shapes.random_scenes import random_hard_scene, random_scene
from captioning.shapes.scene import KINDS, Background, Mark, Scene, Shape, Texture
from captioning.untrusted import read_json

SETTINGS = "shapes.json"
QUALITY = 92  # of the JPEG files
CHUNK = 50  # scenes that a process draws before it asks for more
ROOM = 1_000_000  # ids of each split, so that an id depends on no split's length


def write_shapes(
    directory: str | Path,
    train: Scenes = 6000,
    val: Scenes = 500,
    test: Scenes = 500,
    pixels: ScenePixels = 128,
    seed: Seed = 0,
    progress: bool = True,
    processes: ProcessCount = 1,
    hard: bool = False,
) -> None:
    """Draw a data set of scenes with captions, boxes and masks in COCO's layout.

    ``directory`` then holds ``train/``, ``val/`` and ``test/`` with the pictures, and under
    ``annotations/`` for each split ``captions_*.json`` and ``instances_*.json`` in COCO's schema
    and ``scenes_*.json`` with the scenes themselves. The same arguments give the same bytes. A
    scene depends on its seed, split and number alone, not on how many are drawn.

    The annotations are written atomically after all pictures, so an interrupted run is never taken
    for a data set; repeating the same call completes it.

    Args:
        directory: the folder, created if missing.
        train: scenes to train on.
        val: scenes to validate on.
        test: held-out scenes.
        pixels: side of the square pictures.
        seed: of the scenes.
        progress: report progress on stderr.
        processes: how many draw at a time; the data set does not depend on it.
        hard: more objects, some of them partly hidden, with textures, among clutter
            (`random_hard_scene`).

    Raises:
        InputError: the directory holds something else, or cannot be written to, or a number is out
            of range.
    """
    directory = Path(directory)
    counts = {"train": train, "val": val, "test": test}
    check("shapes", write_shapes, counts | {"pixels": pixels, "seed": seed, "processes": processes})
    settings = {"shapes": 1, **counts, "pixels": pixels, "seed": seed}
    if hard:
        settings["hard"] = True
    _claim(directory, settings)

    try:
        with (
            ProgressBar(
                "shapes", "scenes", total=sum(counts.values()), leave=True, shown=progress
            ) as bar,
            _mapping(processes) as mapped,
        ):
            files: dict[str, Any] = {}
            for number, (split, count) in enumerate(counts.items()):
                folder = directory / split
                folder.mkdir(exist_ok=True)
                drawn = []
                draw = partial(_draw, folder, pixels, seed, number, hard)
                for scene in mapped(draw, range(count)):
                    drawn.append(scene)
                    bar.update()
                files |= _tables(split, drawn, settings)
        _write_annotations(directory, files)
    except OSError as error:
        raise as_input_error(error, directory, "cannot be written") from None
    except BrokenProcessPool:
        raise InputError(
            f"{directory}: a process that drew was killed; the same command completes it"
        ) from None


@contextmanager
def _mapping(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, or the same by several processes, whose results come in the same order."""
    if processes == 1:
        yield map
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    try:
        yield partial(pool.map, chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for thousands of scenes


def _draw(
    folder: Path, pixels: int, seed: int, split: int, hard: bool, index: int
) -> tuple[int, Scene, tuple[str, ...]]:
    """Write a scene's picture; its id, the scene and its captions.

    Args:
        folder: of its split.
        pixels: side of the picture.
        seed: of all scenes.
        split: number of the split.
        hard: whether it is a hard one.
        index: number of the scene within the split.
    """
    rng = np.random.default_rng([seed, split, index])
    scene = random_hard_scene(rng) if hard else random_scene(rng)
    image_id = split * ROOM + index + 1
    image = Image.fromarray(picture(scene, pixels))
    image.save(folder / _file_name(image_id), quality=QUALITY, subsampling=0)
    return image_id, scene, captions(scene, rng)


def read_scenes(directory: str | Path, split: str) -> dict[int, Scene]:
    """The scenes of a split that `write_shapes` has drawn, by image id.

    Raises:
        InputError: the file does not exist, or holds no scenes.
    """
    path = Path(directory) / "annotations" / f"scenes_{split}.json"
    try:
        return {int(image_id): _scene(stored) for image_id, stored in read_json(path).items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: holds no scenes; draw them again: captioning shapes") from None


def _scene(stored: dict[str, Any]) -> Scene:
    """The scene from the dicts and lists of `dataclasses.asdict` and JSON."""
    background = stored["background"]
    colours = {field: tuple(background[field]) for field in ("first", "second")}
    shapes = tuple(
        Shape(**{**shape, "texture": Texture(**shape["texture"]) if "texture" in shape else None})
        for shape in stored["shapes"]
    )
    clutter = tuple(
        Mark(**{**mark, "colour": tuple(mark["colour"])}) for mark in stored.get("clutter", ())
    )
    return Scene(shapes, Background(**{**background, **colours}), clutter)


def _stored(scene: Scene) -> dict[str, Any]:
    """The scene as `_scene` reads it, without empty values."""
    stored = asdict(scene)
    for shape in stored["shapes"]:
        if shape["texture"] is None:
            del shape["texture"]
    if not stored["clutter"]:
        del stored["clutter"]
    return stored


def _file_name(image_id: int) -> str:
    return f"{image_id:012d}.jpg"


def _claim(directory: Path, settings: dict[str, int]) -> None:
    """Prepare the directory, without annotations, or refuse one that holds something else."""
    path = directory / SETTINGS
    remedy = "choose a new folder or delete this one first"
    if directory.is_dir():
        if path.exists():
            if read_json(path) != settings:
                raise InputError(f"{directory}: holds shapes drawn by other settings; {remedy}")
        elif any(not entry.name.startswith(".") for entry in directory.iterdir()):
            raise InputError(f"{directory}: is not empty and holds no shapes data set; {remedy}")
    write_json(path, settings)
    shutil.rmtree(directory / "annotations", ignore_errors=True)


def _write_annotations(directory: Path, files: dict[str, Any]) -> None:
    """Write all annotation files, which become visible together in one rename."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".annotations.") as temporary:
        whole = Path(temporary) / "annotations"
        for name, value in files.items():
            write_json(whole / name, value)
        whole.rename(directory / "annotations")


def _tables(
    split: str, drawn: list[tuple[int, Scene, tuple[str, ...]]], settings: dict[str, int]
) -> dict[str, Any]:
    """The annotation files of a split by name: COCO's captions and instances, and the scenes."""
    pixels = settings["pixels"]
    info = {"description": "shapes: scenes of plain objects", "version": "1", **settings}
    images = [
        {"id": image_id, "file_name": _file_name(image_id), "width": pixels, "height": pixels}
        for image_id, _, _ in drawn
    ]
    shared = {"info": info, "licenses": [], "images": images}
    sentences = [
        {"id": 10 * image_id + number, "image_id": image_id, "caption": caption}
        for image_id, _, texts in drawn
        for number, caption in enumerate(texts)
    ]
    instances = [
        {"id": 10 * image_id + number, "image_id": image_id, **_instance(shape, seen)}
        for image_id, scene, _ in drawn
        for number, (shape, seen) in enumerate(
            zip(scene.shapes, visible_masks(scene, pixels), strict=True)
        )
    ]
    categories = [
        {"id": number, "name": kind, "supercategory": "shape"}
        for number, kind in enumerate(KINDS, start=1)
    ]
    return {
        f"captions_{split}.json": {**shared, "annotations": sentences},
        f"instances_{split}.json": {**shared, "annotations": instances, "categories": categories},
        f"scenes_{split}.json": {image_id: _stored(scene) for image_id, scene, _ in drawn},
    }


def _instance(shape: Shape, seen: Bool[np.ndarray, "H W"]) -> dict[str, Any]:
    """One object as COCO writes it, with its colour and size as attributes.

    Args:
        shape: the object.
        seen: the visible pixels.
    """
    encoded = run_length.encode(np.asfortranarray(seen, dtype=np.uint8))
    return {
        "category_id": KINDS.index(shape.kind) + 1,
        "bbox": list(box(seen)),
        "area": int(seen.sum()),
        "iscrowd": 0,
        "segmentation": {"size": list(seen.shape), "counts": encoded["counts"].decode()},
        "attributes": {"colour": shape.colour, "size": shape.size},
    }
