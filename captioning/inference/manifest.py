"""The settings that a folder of captions was made with, so that captions of others never mix in."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioning.configurable import bare_name
from captioning.errors import InputError
from captioning.files import write_json
from captioning.inference.photo_stream import PhotoStream
from captioning.search import Sampling
from captioning.search.search import Search
from captioning.untrusted import read_json

REMEDY = "resume with the same settings, or give another folder to --out"


class Manifest:
    """manifest.json beside the captions.

    Args:
        folder: the folder of the captions.
        settings: plain values, by name, that the captions depend on.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.path = folder / "manifest.json"
        self.settings = settings

    def check(self) -> None:
        """Compare the settings with those of an existing manifest, if any.

        Raises:
            InputError: the folder was begun with other settings, which are named.
        """
        if not self.path.exists():
            return
        begun = read_json(self.path)
        if not isinstance(begun, dict):
            raise InputError(f"{self.path}: no manifest of captions; give another folder to --out")
        for name, now in self.settings.items():
            then = begun.get(name)
            if then != now:
                raise InputError(
                    f"{self.path.parent}: begun with {_difference(name, then, now)}; {REMEDY}"
                )

    def write(self, **finished: int) -> None:
        """Write the manifest.

        Args:
            finished: the final counts, such as the number of photos; none while captions are
                still missing.
        """
        write_json(self.path, {**self.settings, "finished": finished or None})


def settings(
    checkpoints: Sequence[Path],
    bf16: bool,
    search: Search,
    seed: int,
    shard_size: int,
    photos: PhotoStream,
) -> dict[str, Any]:
    """The settings that captions depend on.

    Args:
        checkpoints: the model's file, or those of an ensemble.
        bf16: whether the search computes in bfloat16.
        search: how words are chosen.
        seed: of sampling.
        shard_size: photos per shard.
        photos: the photos.
    """
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


def _fingerprint(checkpoint: Path) -> str:
    digest = hashlib.sha256()
    with checkpoint.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _difference(name: str, then: Any, now: Any) -> str:
    """A setting's old and new value, in words."""
    if name == "model":
        return "another model"
    if isinstance(then, dict) and isinstance(now, dict):
        changed = [key for key in {**then, **now} if then.get(key) != now.get(key)]
        then, now = ({key: side.get(key) for key in changed} for side in (then, now))
    return f"another {name}, {_shown(then)} and not {_shown(now)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return " ".join(value) if isinstance(value, list) else str(value)
