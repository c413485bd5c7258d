"""Captions any number of photos into shards of JSON lines; photos that have a line are skipped."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.errors import InputError, PhotoError, printable_json
from captioning.files import flat, only_writer, read_json, write_json, written_whole
from captioning.progress_bar import ProgressBar, say
from captioning.search import Sampling, Search
from captioning.threads import batched

NAME = re.compile(r"captions-(\d{5,})\.jsonl")
MANIFEST = "manifest.json"

Photos = Callable[[], Iterable[Path]]
"""Gives the photos in a fixed order, as often as it is called, and never all in memory."""


def json_line(photo: Path, caption: Caption | PhotoError, text: str | None = None) -> str:
    """A photo with its caption or its error, as one line of JSON.

    `text` is the caption as it is written, unless it is the words.
    """
    if isinstance(caption, PhotoError):
        return printable_json({"image": str(photo), "error": str(caption)})
    entry = caption.as_json()
    return printable_json({"image": str(photo), **entry, "caption": text or entry["caption"]})


def captioned_lines(
    captioner: Captioner, search: Search, photos: Sequence[Path], batch_size: int
) -> Iterator[str]:
    """The `json_line` of each photo, in order."""
    return map(json_line, photos, captioner.stream(photos, search, batch_size=batch_size))


@dataclass(frozen=True)
class Shards:
    """The files captions-00000.jsonl, captions-00001.jsonl, ... in a folder, each written whole.

    A file has `size` lines; the last may have fewer. `settings` are plain values, by name, that
    the captions depend on, for the manifest.
    """

    folder: Path
    size: int
    settings: dict[str, Any]

    def path(self, number: int) -> Path:
        return self.folder / f"captions-{number:05d}.jsonl"

    def numbers(self) -> list[int]:
        """The numbers of the existing shards."""
        matches = (NAME.fullmatch(file.name) for file in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def write(self, number: int, lines: Sequence[str]) -> None:
        with written_whole(self.path(number)) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def lines(self, number: int) -> Iterator[tuple[str, bool]]:
        """The photo of each line of a finished shard, and whether it has a caption.

        Raises:
            InputError: a line is not of a photo.
        """
        path = self.path(number)
        with path.open("rb") as lines:
            for place, line in enumerate(lines, start=1):
                try:
                    entry = json.loads(line)
                    photo, has_caption = entry["image"], "error" not in entry
                except (ValueError, TypeError, KeyError, RecursionError):
                    photo = None
                if not isinstance(photo, str):
                    raise InputError(
                        f"{path}: line {place} is not of a photo; remove the file to write it again"
                    )
                yield photo, has_caption

    def check_manifest(self) -> None:
        """Raise InputError if the folder was begun with other settings, or has no manifest."""
        path = self.folder / MANIFEST
        begun = read_json(path) if path.exists() else None
        if begun is None and not self.numbers():
            return
        if not isinstance(begun, dict):
            raise InputError(f"{path}: missing or damaged; give another folder to --out")
        then = dict(flat(begun))
        for name, now in flat(self.settings):
            if then.get(name) != now:
                change = "" if name == "model" else f", {then.get(name)} and not {now}"
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
        photos: the photos.
        shards: where the captions go; this process writes them.
        batch_size: photos per batch.
        ray: a Ray cluster that captions: ``auto``, ``HOST:PORT``, or ``local`` for this machine.
        device: of the cluster, cuda or cpu; its GPUs by default if it has some.

    Returns:
        The number of photos that cannot be read, those of earlier calls too.

    Raises:
        InputError: the folder holds captions with other settings or is in use, a shard is damaged,
            there are no photos, or no cluster answers.
    """
    with only_writer(shards.folder):
        shards.check_manifest()
        taken = set(shards.numbers())
        done = Counter[int]()  # of hashes, which take less memory than paths
        unreadable = missing = 0
        for number in sorted(taken):
            for name, has_caption in shards.lines(number):
                done[hash(name)] += 1
                unreadable += not has_caption
        gone = done.copy()
        with ProgressBar("looking for photos", "photos") as progress:
            for _ in _without_line(photos(), gone):
                missing += 1
                progress.update()
        total = missing + done.total() - gone.total()
        if not total:
            raise InputError("no photos at all; give photos, folders or a --list that names some")
        if gone.total():
            say(f"captioning: {shards.folder}: lines of photos that have gone: {gone.total():,}")
        for file in shards.folder.glob(".captions-*.jsonl"):  # of killed processes
            file.unlink(missing_ok=True)
        shards.write_manifest()
        parts = batched(_without_line(photos(), done), shards.size)
        free = (number for number in count() if number not in taken)
        numbered = zip(free, parts, strict=False)
        found: Iterable[tuple[int, Iterable[str]]] = (
            (number, captioned_lines(captioner, search, part, batch_size))
            for number, part in numbered
        )
        if ray is not None and missing:
            from captioning.inference.ray_cluster import lines_by_ray

            found = lines_by_ray(ray, device, captioner, search, numbered, batch_size)
        with ProgressBar("captioning", "photos", total=missing) as progress:
            for number, of_shard in found:
                lines = []
                for line in of_shard:
                    if error := json.loads(line).get("error"):
                        say(f"captioning: {error}")
                        unreadable += 1
                    lines.append(line)
                    progress.update()
                shards.write(number, lines)
        shards.write_manifest(photos=total, unreadable=unreadable)
        return unreadable


def _without_line(photos: Iterable[Path], lines: Counter[int]) -> Iterator[Path]:
    """The photos that have no line; takes the lines of the others from `lines`, one a photo."""
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
    """The settings that captions depend on, for the manifest."""
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
