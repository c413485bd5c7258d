"""Disks and streams that are full.

Where the campaign may mount, a disk is a small tmpfs; elsewhere files have a largest size, beyond
which writing fails alike. What was written before must be as it was, or whole and new.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from random import Random

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.world import World

NEW_MOUNTS = 0x00020000
PRIVATE = 0x00040000 | 0x4000
DETACH = 2

DISK = 64 * 2**20
"""Bytes of a tmpfs."""

ROOM = (1, 1000, 20_000, 100_000, 300_000, 2_000_000, 4_000_000)
"""Bytes that are left on the disk."""


def _commands(world: World, folder: str) -> dict[str, list[str]]:
    """What writes files into a folder."""
    model = ["--model", str(world.model)]
    photos = list(map(str, world.photos[:3]))
    scored = ["score", str(world.results), str(world.references)]
    judged = ["judge", str(world.ratings), "--references", str(world.references)]
    return {
        "train": [
            *("train", "--config", str(world.config), "--overwrite"),
            *("--trainer.default_root_dir", folder),
        ],
        "bulk": ["caption", *photos, *model, "--shard-size", "1", "--out", folder],
        "overlay": ["caption", *photos, *model, "--overlay", folder],
        "html": ["caption", *photos, *model, "--html", folder],
        "features": ["features", "--config", str(world.frozen), "--data.features", folder],
        "report": [*scored, "--json", f"{folder}/report.json"],
        "frequencies": [*scored, "--save-frequencies", f"{folder}/frequencies.npz"],
        "judged": [*judged, "--json", f"{folder}/judge.json", "--plot", f"{folder}/judge.png"],
        "evaluate": ["evaluate", "--data", str(world.shapes), *model, "--out", folder],
        "ground": ["ground", "--data", str(world.shapes), *model, "--out", folder],
        "shapes": ["shapes", folder, "--train", "3", "--val", "2", "--test", "1"],
    }


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    commands = _commands(world, "out/disk")
    name = "train" if number % 3 == 0 else list(commands)[number % len(commands)]
    if random.random() < 0.3:
        full = random.choice((True, False))
        label = f"{name}: {'a full' if full else 'no'} stdout"
        return Case(label, _of_stream(commands[name], full, folder))
    room, again = random.choice(ROOM), random.random() < 0.6
    label = f"{name}: {room} bytes left{', written before' if again else ''}"
    return Case(label, _of_disk(commands[name], room, again, folder))


def _of_stream(arguments: list[str], full: bool, folder: Path) -> Steps:
    def close() -> None:  # as Python starts where there is no stdout
        os.close(1)
        sys.stdout = None

    call = Call(arguments, stdout="/dev/full") if full else Call(arguments, before=close)
    outcome = yield call
    found = [*judge.faults(outcome, folder, inputs=3), *judge.half_written(folder)]
    if full and outcome.code == 0 and "bulk" not in arguments:
        found.append("other: done, though nothing could be printed")
    return found


def _of_disk(arguments: list[str], room: int, again: bool, folder: Path) -> Steps:
    disk = folder / "out" / "disk"
    disk.mkdir(parents=True)
    is_mounted = _mount(disk)
    try:
        if again:
            outcome = yield Call(arguments)
            if outcome.code != 0:
                return [f"other: failed before the disk was full: {outcome.err[-200:]}"]
            if "shapes" in arguments:
                arguments = [*arguments, "--seed", "1"]
        before = {file: file.read_bytes() for file in _files(disk)}
        if is_mounted:
            _fill(disk, room)
        # Complaints are written to a file, too, so that it must not be too small for them.
        outcome = yield Call(arguments, file_bytes=None if is_mounted else max(room, 20_000))
        found = judge.faults(outcome, folder, inputs=3)
        found += [
            fault
            for fault in judge.half_written(disk, apart=".filled")
            if before.get(disk / fault.split(": ")[1]) is None
            or before[disk / fault.split(": ")[1]] != (disk / fault.split(": ")[1]).read_bytes()
        ]
        gone = [file for file in before if not file.exists() and "--overwrite" not in arguments]
        return found + [f"half-written: {file.name}: gone" for file in gone]
    finally:
        if is_mounted:
            _libc().umount2(os.fsencode(disk), DETACH)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _fill(disk: Path, room: int) -> None:
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with (disk / ".filled").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - room))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL("libc.so.6", use_errno=True)


@cache
def _may_mount() -> bool:
    """Whether this process now has mounts of its own, which end with it."""
    libc = _libc()
    return libc.unshare(NEW_MOUNTS) == 0 and libc.mount(b"none", b"/", None, PRIVATE, None) == 0


def _mount(folder: Path) -> bool:
    """Whether a small disk is mounted there."""
    size = f"size={DISK}".encode()
    return _may_mount() and _libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size) == 0


FULL_DISKS = Kind("full-disks", whole=20, tenth=2, case=_case)
