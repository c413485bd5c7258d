"""Writes the shapes data set in COCO's layout."""

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as run_length
from pydantic import TypeAdapter

from captioning.errors import InputError, reading
from captioning.files import read_json, write_json
from captioning.progress_bar import ProgressBar
from captioning.shapes.drawing import box, mask, picture
from captioning.shapes.language import captions
from captioning.shapes.random_scenes import random_scene
from captioning.shapes.scene import KINDS, Scene

SETTINGS = "shapes.json"
QUALITY = 92  # of the JPEG files
SCENES_PER_TASK = 50  # of a process
IDS_PER_SPLIT = 1_000_000  # so that ids do not depend on the length of splits

SCENES = TypeAdapter(dict[int, Scene])  # converts scenes from and to JSON's values
DrawnScene = tuple[dict[str, Any], Scene, tuple[str, ...]]  # COCO's image entry, scene, captions


def write_shapes(
    directory: str | Path,
    train: int = 6000,
    val: int = 500,
    test: int = 500,
    pixels: int = 128,
    seed: int = 0,
    progress: bool = True,
    processes: int = 1,
) -> None:
    """Draw a data set of scenes with captions, boxes and masks in COCO's layout.

    ``directory`` then holds ``train/``, ``val/`` and ``test/`` with the pictures, and under
    ``annotations/`` for each split ``captions_*.json`` and ``instances_*.json`` in COCO's schema
    and ``scenes_*.json`` with the scenes themselves. A scene depends only on its seed, split and
    number. The annotations are written last, in one step, so an interrupted run is no data set;
    repeating the same call completes it.

    Args:
        directory: the folder, created if missing.
        train: number of training scenes.
        val: number of validation scenes.
        test: number of test scenes.
        pixels: side of the square pictures.
        seed: of the scenes.
        progress: report progress on stderr.
        processes: number of processes that draw.

    Raises:
        InputError: the directory holds other files.
    """
    directory = Path(directory)
    counts = {"train": train, "val": val, "test": test}
    settings = {"shapes": 1, **counts, "pixels": pixels, "seed": seed}
    if (path := directory / SETTINGS).exists():
        if read_json(path) != settings:
            raise InputError(
                f"{directory}: holds shapes drawn by other settings; give a new folder"
            )
    elif directory.is_dir() and any(part.name[0] != "." for part in directory.iterdir()):
        raise InputError(f"{directory}: holds something else than shapes; give a new folder")
    write_json(path, settings)
    shutil.rmtree(directory / "annotations", ignore_errors=True)
    files: dict[str, Any] = {}
    progress_bar = ProgressBar(
        "shapes", "scenes", sum(counts.values()), leave=True, visible=progress
    )
    with progress_bar as bar, ExitStack() as stack:
        map_scenes: Callable[..., Iterable[Any]] = map
        if processes > 1:
            pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
            # An interrupt does not wait for thousands of scenes.
            stack.callback(pool.shutdown, cancel_futures=True)
            map_scenes = partial(pool.map, chunksize=SCENES_PER_TASK)
        for number, (split, count) in enumerate(counts.items()):
            folder = directory / split
            folder.mkdir(exist_ok=True)
            scenes = []
            for scene in map_scenes(partial(_draw, folder, settings, number), range(count)):
                scenes.append(scene)
                bar.update()
            files |= _annotation_files(split, scenes, settings)
    # All annotation files become visible together in one rename.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".annotations.") as temporary:
        annotations = Path(temporary) / "annotations"
        for name, value in files.items():
            write_json(annotations / name, value)
        annotations.rename(directory / "annotations")


def read_scenes(directory: str | Path, split: str) -> dict[int, Scene]:
    """Read the scenes of a split that `write_shapes` has drawn, by image id.

    Raises:
        InputError: the file does not exist, or holds no scenes, or hard ones of earlier versions.
    """
    path = Path(directory) / "annotations" / f"scenes_{split}.json"
    with reading(path):
        content = read_json(path)
        scenes = SCENES.validate_python(content)
    if any("clutter" in scene for scene in content.values()):
        raise InputError(
            f"{path}: hard scenes were removed; draw plain ones by captioning shapes, or delete "
            "this file to use the folder as any COCO folder"
        )
    return scenes


def _draw(folder: Path, settings: dict[str, int], split: int, index: int) -> DrawnScene:
    """Write the picture of a scene, given the numbers of its split and within it."""
    rng = np.random.default_rng([settings["seed"], split, index])
    scene = random_scene(rng)
    image_id, pixels = split * IDS_PER_SPLIT + index + 1, settings["pixels"]
    name = f"{image_id:012d}.jpg"
    Image.fromarray(picture(scene, pixels)).save(folder / name, quality=QUALITY, subsampling=0)
    image = {"id": image_id, "file_name": name, "width": pixels, "height": pixels}
    return image, scene, captions(scene, rng)


def _annotation_files(
    split: str, drawn_scenes: list[DrawnScene], settings: dict[str, int]
) -> dict[str, Any]:
    """The annotation files of a split by name: COCO's captions and instances, and the scenes."""
    sentences, instances = [], []
    for image, scene, texts in drawn_scenes:
        for number, text in enumerate(texts):
            annotation_id = 10 * image["id"] + number
            sentences.append({"id": annotation_id, "image_id": image["id"], "caption": text})
        for number, shape in enumerate(scene.shapes):
            covered = mask(shape, settings["pixels"])
            encoded = run_length.encode(np.asfortranarray(covered, dtype=np.uint8))
            instance = {
                "id": 10 * image["id"] + number,
                "image_id": image["id"],
                "category_id": KINDS.index(shape.kind) + 1,
                "bbox": list(box(covered)),
                "area": int(covered.sum()),
                "iscrowd": 0,
                "segmentation": {"size": covered.shape, "counts": encoded["counts"].decode()},
                "attributes": {"colour": shape.colour, "size": shape.size},
            }
            instances.append(instance)
    shared = {
        "info": {"description": "shapes: scenes of plain objects", "version": "1", **settings},
        "licenses": [],
        "images": [image for image, _, _ in drawn_scenes],
    }
    categories = [
        {"id": number, "name": kind, "supercategory": "shape"}
        for number, kind in enumerate(KINDS, 1)
    ]
    scenes = {image["id"]: scene for image, scene, _ in drawn_scenes}
    return {
        f"captions_{split}.json": {**shared, "annotations": sentences},
        f"instances_{split}.json": {**shared, "annotations": instances, "categories": categories},
        f"scenes_{split}.json": SCENES.dump_python(scenes, exclude_defaults=True),
    }
