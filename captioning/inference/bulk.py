"""Bulk captioning into shards of JSON lines; photos that have a line are skipped."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.errors import InputError
from captioning.files import dotted_items, only_writer, read_json, write_json, written_whole
from captioning.inference.json_lines import captioned_lines
from captioning.progress_bar import ProgressBar, say
from captioning.search import Sampling, Search
from captioning.threads import batched

SHARD_NAME = re.compile(r"captions-(\d{5,})\.jsonl")
MANIFEST = "manifest.json"

Photos = Callable[[], Iterable[Path]]
"""A function that yields the photos in a fixed order, as often as it is called."""


@dataclass(frozen=True)
class Shards:
    """The files captions-00000.jsonl, captions-00001.jsonl, ... in a folder, each written whole.

    A file has `size` lines; the last may have fewer. `settings` are the plain values of the
    manifest, by name, which the captions depend on.
    """

    folder: Path
    size: int
    settings: dict[str, Any]

    def path(self, number: int) -> Path:
        return self.folder / f"captions-{number:05d}.jsonl"

    def numbers(self) -> list[int]:
        """Return the numbers of the existing shards, in order."""
        matches = (SHARD_NAME.fullmatch(file.name) for file in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def write(self, number: int, lines: Sequence[str]) -> None:
        with written_whole(self.path(number)) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def lines(self, number: int) -> Iterator[tuple[str, bool]]:
        """Yield the photo of each line of a finished shard, and whether it has a caption.

        Raises:
            InputError: a line is not of a photo.
        """
        path = self.path(number)
        with path.open("rb") as lines:
            for line_number, line in enumerate(lines, start=1):
                try:
                    entry = json.loads(line)
                    photo, has_caption = entry["image"], "error" not in entry
                except (ValueError, TypeError, KeyError, RecursionError):
                    photo = None
                if not isinstance(photo, str):
                    raise InputError(
                        f"{path}: line {line_number} is not of a photo; remove the file to write "
                        "it again"
                    )
                yield photo, has_caption

    def check_manifest(self) -> None:
        """Raise InputError if the folder was begun with other settings, or has no manifest."""
        path = self.folder / MANIFEST
        manifest = read_json(path) if path.exists() else None
        if manifest is None and not self.numbers():
            return
        if not isinstance(manifest, dict):
            raise InputError(f"{path}: missing or damaged; give another folder to --out")
        earlier_settings = dict(dotted_items(manifest))
        for name, value in dotted_items(self.settings):
            earlier_value = earlier_settings.get(name)
            if earlier_value != value:
                change = "" if name == "model" else f", {earlier_value} and not {value}"
                raise InputError(
                    f"{self.folder}: begun with another {name}{change}; resume with the same "
                    "settings, or give another folder to --out"
                )

    def write_manifest(self, **finished: int) -> None:
        """Write the manifest, with the final counts once no captions are missing."""
        write_json(self.folder / MANIFEST, {**self.settings, "finished": finished or None})


def caption_into_shards(
    captioner: Captioner,
    search: Search,
    photos: Photos,
    shards: Shards,
    batch_size: int = 16,
    ray: str | None = None,
    device: str | None = None,
) -> int:
    """Caption the photos that have no line yet, into shards with the first free numbers.

    Args:
        captioner: the model.
        search: how words are chosen.
        photos: the photos, which are never all in memory.
        shards: the files of captions, which only this process writes.
        batch_size: photos per batch.
        ray: a Ray cluster to caption on: ``auto``, ``HOST:PORT``, or ``local`` for this machine.
        device: the device of the cluster, cuda or cpu; its GPUs by default if it has some.

    Returns:
        The number of photos that cannot be read, also in earlier calls.

    Raises:
        InputError: the folder holds captions with other settings or is in use, a shard is damaged,
            there are no photos, or no cluster answers.
    """
    with only_writer(shards.folder):
        shards.check_manifest()
        numbers = set(shards.numbers())
        lines = Counter[int]()  # of photos, by hashes, which take less memory than paths
        unreadable = 0
        for number in sorted(numbers):
            for photo, has_caption in shards.lines(number):
                lines[hash(photo)] += 1
                unreadable += not has_caption
        lines_of_missing_photos = lines.copy()
        without_line = 0
        with ProgressBar("looking for photos", "photos") as progress:
            for _ in _photos_without_line(photos(), lines_of_missing_photos):
                without_line += 1
                progress.update()
        missing = lines_of_missing_photos.total()
        total = without_line + lines.total() - missing
        if not total:
            raise InputError("no photos at all; give photos, folders or a --list that names some")
        if missing:
            say(f"captioning: {shards.folder}: lines of photos that have gone: {missing:,}")
        for file in shards.folder.glob(".captions-*.jsonl"):  # of killed processes
            file.unlink(missing_ok=True)
        shards.write_manifest()
        free_numbers = (number for number in count() if number not in numbers)
        shard_photos = batched(_photos_without_line(photos(), lines), shards.size)
        parts = zip(free_numbers, shard_photos, strict=False)
        shard_lines: Iterable[tuple[int, Iterable[str]]]
        if ray is not None and without_line:
            from captioning.inference.ray_cluster import lines_by_ray  # an extra

            shard_lines = lines_by_ray(ray, device, captioner, search, parts, batch_size)
        else:
            shard_lines = (
                (number, captioned_lines(captioner, search, part, batch_size))
                for number, part in parts
            )
        with ProgressBar("captioning", "photos", total=without_line) as progress:
            for number, new_lines in shard_lines:
                finished_lines = []
                for line in new_lines:
                    if error := json.loads(line).get("error"):
                        say(f"captioning: {error}")
                        unreadable += 1
                    finished_lines.append(line)
                    progress.update()
                shards.write(number, finished_lines)
        shards.write_manifest(photos=total, unreadable=unreadable)
        return unreadable


def _photos_without_line(photos: Iterable[Path], lines: Counter[int]) -> Iterator[Path]:
    """Yield the photos that have no line, and remove one line per other photo from `lines`."""
    for photo in photos:
        key = hash(str(photo))
        if lines[key]:
            lines[key] -= 1
        else:
            yield photo


def manifest_settings(
    checkpoint: Path,
    bf16: bool,
    search: Search,
    seed: int,
    shard_size: int,
    paths: Sequence[str | Path],
    listed: Path | None,
) -> dict[str, Any]:
    """Return the settings that captions depend on, for the manifest."""
    with checkpoint.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "model": f"sha256:{digest}",
        "bf16": bf16,
        "search": search.config
        | {"class": bare_name(search.config["class"])}
        | ({"seed": seed} if isinstance(search, Sampling) else {}),
        "shard size": shard_size,
        "photos": [str(path) for path in paths],
        "list": None if listed is None else str(listed),
    }
