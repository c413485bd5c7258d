"""Captions any number of photos into shards of JSON lines; a shard whose file exists is done."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from captioning.captioner.captioner import Captioner
from captioning.configurable import bare_name
from captioning.data.photos import find_photos
from captioning.data.ranks import decided_by_first_rank
from captioning.errors import InputError, UsageError
from captioning.files import made_folder, only_writer
from captioning.inference.batches import cut, found_captions, json_line, read_ahead, seeded
from captioning.inference.processes import ALONE, Processes, results
from captioning.inference.shards import Shards
from captioning.progress_bar import ProgressBar, is_first_process, say
from captioning.search import Sampling
from captioning.search.search import Search


class PhotoStream:
    """The photos of paths and a list, in a fixed order and never all in memory.

    Args:
        paths: photos and folders.
        listed: a text file of further photos, one path a line; not a pipe, since it is read often.
    """

    def __init__(self, paths: Sequence[str | Path], listed: str | Path | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.listed = None if listed is None else Path(listed)
        if self.listed is not None and self.listed.exists() and not self.listed.is_file():
            raise UsageError(
                f"{self.listed}: cannot be read more than once; write the list to a file"
            )

    def __iter__(self) -> Iterator[Path]:
        """See `captioning.data.photos.find_photos`."""
        return find_photos(self.paths, self.listed)


class Survey(NamedTuple):
    """What a folder of captions holds of a stream of photos.

    Attributes:
        photos: number of photos.
        unreadable: number of those with an error instead of a caption.
        missing: number of those without a shard yet, by the rank of the process.
    """

    photos: int
    unreadable: int
    missing: list[int]


def caption_into_shards(
    captioner: Captioner,
    search: Search,
    photos: PhotoStream,
    shards: Shards,
    batch_size: int = 16,
    seed: int = 0,
    processes: Processes = ALONE,
) -> Survey | None:
    """Caption a stream of photos; process p of P writes the missing ones of shards p, p + P, ...

    Returns:
        The survey of the finished folder; None in all processes but the first.

    Raises:
        InputError: the folder holds captions of other photos or with other settings, another
            process writes there, there are no photos, or they or the captions have changed
            meanwhile.
        UsageError: this machine has too few devices.
    """

    search = seeded(search, seed)

    def caption_share(process: int, count: int) -> None:
        missing = decided_by_first_rank(lambda: _begin(photos, shards, count))
        with ProgressBar(
            "captioning" if count == 1 else f"process 1 of {count}",
            "photos",
            total=missing[process],
            shown=process == 0,
        ) as progress:
            for number, part in shards.cut(photos):
                if number % count != process or shards.path(number).exists():
                    continue
                lines: list[str] = []
                for _, paths, views in read_ahead(captioner, enumerate(cut(part, batch_size))):
                    captions = found_captions(captioner, views, search)
                    for path, found in zip(paths, captions, strict=True):
                        if isinstance(found, InputError):
                            say(f"captioning: {found}")
                        best = found if isinstance(found, InputError) else found[0]
                        lines.append(json_line(path, best))
                    progress.update(len(paths))
                shards.write(number, lines)

    # The first process holds the folder for all.
    with only_writer(shards.folder) if is_first_process() else nullcontext():
        if results(captioner, caption_share, processes) is None:
            return None
        made_folder(shards.folder)  # unless it was removed
        found = survey(photos, shards, 1)
        if any(found.missing):
            shards.write_manifest()  # the settings of what is there, for the next call
            raise InputError(
                f"{shards.folder}: {sum(found.missing):,} of {found.photos:,} captions are not "
                "there: photos came, or files were removed, while others were captioned; run the "
                "command again to write them"
            )
        shards.write_manifest(photos=found.photos, unreadable=found.unreadable)
        return found


def survey(photos: PhotoStream, shards: Shards, processes: int) -> Survey:
    """Compare the shards with the photos.

    Raises:
        InputError: a shard is of other photos.
    """
    total, count, unreadable, missing = 0, 0, 0, [0] * processes
    with ProgressBar("looking for photos", "photos") as progress:
        for number, part in shards.cut(photos):
            count = number + 1
            total += len(part)
            if shards.path(number).exists():
                unreadable += shards.unreadable(number, part)
            else:
                missing[number % processes] += len(part)
            progress.update(len(part))
    for number in shards.numbers():
        if number >= count:
            raise InputError(
                f"{shards.path(number)}: there are no photos for it; they have changed since it "
                "was written: give another --out, or remove the file"
            )
    return Survey(total, unreadable, missing)


def settings(
    checkpoints: Sequence[Path],
    bf16: bool,
    search: Search,
    seed: int,
    shard_size: int,
    photos: PhotoStream,
) -> dict[str, Any]:
    """The settings that captions depend on, for the manifest."""
    models = [_fingerprint(checkpoint) for checkpoint in checkpoints]
    return {
        "model": models[0] if len(models) == 1 else models,
        "bf16": bf16,
        "search": search.config
        | {"class": bare_name(search.config["class"])}
        | ({"seed": seed} if isinstance(search, Sampling) else {}),
        "shard size": shard_size,
        "photos": [str(path) for path in photos.paths],
        "list": None if photos.listed is None else str(photos.listed),
    }


def _begin(photos: PhotoStream, shards: Shards, processes: int) -> list[int]:
    """Check that the folder fits, and write the manifest; returns `Survey.missing`."""
    shards.check_manifest()
    found = survey(photos, shards, processes)
    if not found.photos:
        raise InputError("no photos at all; give photos, folders or a --list that names some")
    shards.remove_unfinished()
    shards.write_manifest()
    return found.missing


def _fingerprint(checkpoint: Path) -> str:
    digest = hashlib.sha256()
    with checkpoint.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"
