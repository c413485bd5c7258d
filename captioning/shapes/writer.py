"""The shapes data set on disk, in COCO's layout."""

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from PIL import Image
from pycocotools import mask as run_length
from pydantic import TypeAdapter, ValidationError

from captioning.errors import InputError, as_input_error
from captioning.files import write_json
from captioning.numbers import ProcessCount, ScenePixels, Scenes, Seed, check
from captioning.progress_bar import ProgressBar
from captioning.shapes.drawing import box, picture, visible_masks
from captioning.shapes.language import captions
from captioning.shapes.random_scenes import random_hard_scene, random_scene
from captioning.shapes.scene import KINDS, Scene, Shape
from captioning.untrusted import read_json

SETTINGS = "shapes.json"
QUALITY = 92  # of the JPEG files
CHUNK = 50  # scenes that a process draws before it asks for more
ROOM = 1_000_000  # ids of each split, so that an id depends on no split's length

SCENES = TypeAdapter(dict[int, Scene])  # converts scenes from and to JSON's values
Drawn = tuple[int, Scene, tuple[str, ...]]  # image id, scene, captions


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
    and ``scenes_*.json`` with the scenes themselves. A scene depends on its seed, split and number
    alone. The annotations are written last, in one step, so an interrupted run is never taken for a
    data set; repeating the same call completes it.

    Args:
        directory: the folder, created if missing.
        train: scenes to train on.
        val: scenes to validate on.
        test: held-out scenes.
        pixels: side of the square pictures.
        seed: of the scenes.
        progress: report progress on stderr.
        processes: how many draw at a time.
        hard: draw `random_hard_scene` instead of `random_scene`.

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
    total = sum(counts.values())
    try:
        with (
            ExitStack() as stack,
            ProgressBar("shapes", "scenes", total, leave=True, shown=progress) as bar,
        ):
            mapped: Callable[..., Iterable[Any]] = map
            if processes > 1:
                pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
                # An interrupt does not wait for thousands of scenes.
                stack.callback(pool.shutdown, cancel_futures=True)
                mapped = partial(pool.map, chunksize=CHUNK)
            files: dict[str, Any] = {}
            for number, (split, count) in enumerate(counts.items()):
                folder = directory / split
                folder.mkdir(exist_ok=True)
                drawn = []
                for scene in mapped(partial(_draw, folder, settings, number), range(count)):
                    drawn.append(scene)
                    bar.update()
                files |= _tables(split, drawn, settings)
        # All annotation files become visible together in one rename.
        with tempfile.TemporaryDirectory(dir=directory, prefix=".annotations.") as temporary:
            whole = Path(temporary) / "annotations"
            for name, value in files.items():
                write_json(whole / name, value)
            whole.rename(directory / "annotations")
    except OSError as error:
        raise as_input_error(error, directory, "cannot be written") from None
    except BrokenProcessPool:
        raise InputError(
            f"{directory}: a process that drew was killed; the same command completes it"
        ) from None


def _draw(folder: Path, settings: dict[str, int], split: int, index: int) -> Drawn:
    """Write the picture of a scene, whose split and place in it are numbers."""
    rng = np.random.default_rng([settings["seed"], split, index])
    scene = random_hard_scene(rng) if settings.get("hard") else random_scene(rng)
    image_id = split * ROOM + index + 1
    image = Image.fromarray(picture(scene, settings["pixels"]))
    image.save(folder / _file_name(image_id), quality=QUALITY, subsampling=0)
    return image_id, scene, captions(scene, rng)


def read_scenes(directory: str | Path, split: str) -> dict[int, Scene]:
    """The scenes of a split that `write_shapes` has drawn, by image id.

    Raises:
        InputError: the file does not exist, or holds no scenes.
    """
    path = Path(directory) / "annotations" / f"scenes_{split}.json"
    try:
        return SCENES.validate_python(read_json(path))
    except ValidationError:
        raise InputError(f"{path}: holds no scenes; draw them again: captioning shapes") from None


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


def _tables(split: str, drawn: list[Drawn], settings: dict[str, int]) -> dict[str, Any]:
    """The annotation files of a split by name: COCO's captions and instances, and the scenes."""
    pixels = settings["pixels"]
    images, sentences, instances = [], [], []
    for image_id, scene, texts in drawn:
        name = _file_name(image_id)
        images.append({"id": image_id, "file_name": name, "width": pixels, "height": pixels})
        for number, caption in enumerate(texts):
            place = {"id": 10 * image_id + number, "image_id": image_id}
            sentences.append({**place, "caption": caption})
        for number, seen in enumerate(visible_masks(scene, pixels)):
            place = {"id": 10 * image_id + number, "image_id": image_id}
            instances.append({**place, **_instance(scene.shapes[number], seen)})
    shared = {
        "info": {"description": "shapes: scenes of plain objects", "version": "1", **settings},
        "licenses": [],
        "images": images,
    }
    categories = [
        {"id": number, "name": kind, "supercategory": "shape"}
        for number, kind in enumerate(KINDS, start=1)
    ]
    scenes = {image_id: scene for image_id, scene, _ in drawn}
    return {
        f"captions_{split}.json": {**shared, "annotations": sentences},
        f"instances_{split}.json": {**shared, "annotations": instances, "categories": categories},
        f"scenes_{split}.json": SCENES.dump_python(scenes, exclude_defaults=True),
    }


def _instance(shape: Shape, seen: Bool[np.ndarray, "H W"]) -> dict[str, Any]:
    """One object, of which these pixels can be seen, as COCO writes it."""
    encoded = run_length.encode(np.asfortranarray(seen, dtype=np.uint8))
    return {
        "category_id": KINDS.index(shape.kind) + 1,
        "bbox": list(box(seen)),
        "area": int(seen.sum()),
        "iscrowd": 0,
        "segmentation": {"size": list(seen.shape), "counts": encoded["counts"].decode()},
        "attributes": {"colour": shape.colour, "size": shape.size},
    }
