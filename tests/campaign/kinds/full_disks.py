"""Disks and streams that are full.

Where the campaign may mount, a disk is a small tmpfs; elsewhere files have a largest size, beyond
which writing fails alike. What was written before must be as it was, or whole and new.
"""

import ctypes
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds import writers
from tests.campaign.world import World

NEW_MOUNTS = 0x00020000
PRIVATE = 0x00040000 | 0x4000
DETACH = 2

DISK = 64 * 2**20
"""Bytes of a tmpfs."""

ROOM = (1, 1000, 20_000, 100_000, 300_000, 2_000_000, 4_000_000)
"""Bytes that are left on the disk."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    calls = writers.calls(world)
    name = list(calls)[number % len(calls)]
    if random.random() < 0.3:
        full = random.choice((True, False))
        label = f"{name}: {'a full' if full else 'no'} stdout"
        return Case(label, _of_stream(calls[name], full, folder))
    room, again = random.choice(ROOM), random.random() < 0.6
    label = f"{name}: {room} bytes left{', written before' if again else ''}"
    return Case(label, _of_disk(world, name, room, again, folder))


def _of_stream(call: Call, full: bool, folder: Path) -> Steps:
    def close() -> None:  # as Python starts where there is no stdout
        os.close(1)
        sys.stdout = None

    changes: dict[str, Any] = {"stdout": "/dev/full"} if full else {"before": close}
    outcome = yield replace(call, **changes)
    found = [*judge.faults(outcome, folder, inputs=6), *judge.half_written(folder)]
    if full and outcome.code == 0:
        found.append("other: done, though nothing could be printed")
    return found


def _of_disk(world: World, name: str, room: int, again: bool, folder: Path) -> Steps:
    call = writers.calls(world)[name]
    disk = folder / writers.OUT
    disk.mkdir()
    is_mounted = _mount(disk)
    try:
        if again:
            outcome = yield call
            if outcome.code != 0:
                return [f"other: failed before the disk was full: {outcome.err[-200:]}"]
            if name == "shapes":
                call = replace(call, arguments=[*call.arguments, "--seed", "1"])
        before = {file: file.read_bytes() for file in _files(disk)}
        if is_mounted:
            _fill(disk, room)
        # Complaints are written to a file, too, so that it must not be too small for them.
        outcome = yield replace(call, file_bytes=None if is_mounted else max(room, 20_000))
        found = judge.faults(outcome, folder, inputs=6)
        if outcome.code == 0:
            found += writers.missing(world, name, disk)
        found += [
            fault
            for fault in judge.half_written(disk, apart=".filled")
            if before.get(disk / fault.split(": ")[1]) is None
            or before[disk / fault.split(": ")[1]] != (disk / fault.split(": ")[1]).read_bytes()
        ]
        begins_again = call.arguments[0] in ("train", "finetune")
        gone = [file for file in before if not file.exists() and not begins_again]
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


FULL_DISKS = Kind("full-disks", whole=90, tenth=5, case=_case, prepare=writers.prepare)
