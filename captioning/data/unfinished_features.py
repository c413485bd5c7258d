"""Writes features so that a killed run can resume at any point.

Until the index is written, a folder of features holds

    annotations.npy         the vectors of all photos, allocated at full size from the beginning
    index.unfinished.json   the encoder's fingerprint and the photos
    finished-*.txt          a journal per process and start: row and bytes of each finished photo
    writing.lock            held by the first process while it writes

A photo enters a journal after its vectors are on disk, so journaled rows are complete and all
others are written anew. The index, written last, makes the folder a `FeatureCache`.
"""

import fcntl
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TextIO

import numpy as np
from jaxtyping import Float16

from captioning.data.feature_cache import ANNOTATIONS, INDEX, REMEDY, has_changed, place
from captioning.errors import InputError
from captioning.files import made_folder, remove_unfinished, write_json, written_whole
from captioning.untrusted import read_json

UNFINISHED = "index.unfinished.json"
LOCK = "writing.lock"
_JOURNALED = re.compile(r"(\d{1,15}) (\d{1,15})\n", re.ASCII)  # a row, and a number of bytes


class UnfinishedFeatures:
    """A folder of annotation vectors that one or more processes are writing.

    Args:
        folder: the folder.
        fingerprint: see `captioning.data.feature_cache.fingerprint`.
        images: paths of the photos, in the order of the rows.
        shape: L and D.
    """

    def __init__(
        self, folder: Path, fingerprint: str, images: Sequence[Path], shape: tuple[int, int]
    ) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.images = images
        self._header = _header((len(images), *shape))
        self._row_bytes = shape[0] * shape[1] * np.dtype(np.float16).itemsize

    def begin(self) -> dict[int, int]:
        """Prepare the folder; returns the finished rows, each with the bytes of its photo.

        Only one process calls this, inside `locked`.

        Raises:
            InputError: the folder holds something else, or the disk is too small.
        """
        if (self.folder / UNFINISHED).exists():
            self._check()
        elif (self.folder / ANNOTATIONS).exists():
            raise InputError(f"{self.folder}: {ANNOTATIONS} has no index beside it; {REMEDY}")
        else:
            self._forget()
            write_json(
                self.folder / UNFINISHED, {"fingerprint": self.fingerprint, "images": self._names}
            )
        if not self._is_allocated():
            self._forget()
            self._allocate()
        return {
            row: size
            for row, size in self._journaled()
            if row < len(self.images) and not has_changed(self.images[row], size)
        }

    def check_seen(self) -> None:
        """Check that this process sees the same folder as the process that called `begin`.

        Raises:
            InputError: it does not.
        """
        if not self._is_allocated():
            raise InputError(
                f"{self.folder}: not the same folder on all machines; give one that they share"
            )

    @contextmanager
    def writer(self) -> Iterator["RowWriter"]:
        """A writer for this process's rows; several processes may write at a time."""
        # Byte ranges rather than a memory map: on a shared file system, two machines would each
        # write back their own version of a page that holds rows of both.
        file = os.open(self.folder / ANNOTATIONS, os.O_WRONLY)
        journal = self.folder / f"finished-{uuid.uuid4().hex}.txt"
        try:
            with journal.open("x", encoding="ascii") as finished:
                yield RowWriter(file, finished, len(self._header), self._row_bytes)
        finally:
            os.close(file)

    def finish(self, sizes: Mapping[int, int]) -> None:
        """Turn the folder, now complete, into a `FeatureCache`.

        Only one process calls this, inside `locked`.

        Args:
            sizes: the bytes of every row's photo.
        """
        images = {name: sizes[row] for row, name in enumerate(self._names)}
        write_json(self.folder / INDEX, {"fingerprint": self.fingerprint, "images": images})
        (self.folder / UNFINISHED).unlink()
        self._forget()

    @cached_property
    def _names(self) -> list[str]:
        """The photos' paths relative to the folder."""
        folder = place(self.folder)
        return [os.path.relpath(place(image), folder) for image in self.images]

    def _check(self) -> None:
        found = read_json(self.folder / UNFINISHED)
        if not isinstance(found, dict) or found.get("fingerprint") != self.fingerprint:
            raise InputError(
                f"{self.folder}: holds unfinished features of another encoder, other weights or "
                f"another image size; {REMEDY}"
            )
        if found.get("images") != self._names:
            raise InputError(f"{self.folder}: holds unfinished features of other photos; {REMEDY}")

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob("finished-*.txt"))

    def _forget(self) -> None:
        for journal in self._journals():
            journal.unlink()

    def _journaled(self) -> Iterator[tuple[int, int]]:
        for journal in self._journals():
            for line in journal.read_text(encoding="ascii", errors="replace").splitlines(True):
                if journaled := _JOURNALED.fullmatch(line):
                    row, size = map(int, journaled.groups())
                    yield row, size

    def _is_allocated(self) -> bool:
        path = self.folder / ANNOTATIONS
        return path.exists() and path.stat().st_size == self._bytes

    @property
    def _bytes(self) -> int:
        return len(self._header) + len(self.images) * self._row_bytes

    def _allocate(self) -> None:
        """Create the file with header and full size atomically, so that a kill leaves no part."""
        free = shutil.disk_usage(self.folder).free
        if free < self._bytes:
            raise InputError(
                f"{self.folder}: the features need {self._bytes / 1e9:.1f} GB, but "
                f"{free / 1e9:.1f} GB are free there; make room or give another place"
            )
        remove_unfinished(self.folder / ANNOTATIONS)
        with written_whole(self.folder / ANNOTATIONS) as path, path.open("wb") as file:
            file.write(self._header)
            file.truncate(self._bytes)
            os.fsync(file.fileno())


class RowWriter:
    """Writes rows to disk, then to the journal.

    Args:
        file: descriptor of the file of all rows.
        journal: this process's journal.
        start: offset of the first row in the file.
        row_bytes: bytes of every row.
    """

    def __init__(self, file: int, journal: TextIO, start: int, row_bytes: int) -> None:
        self._file = file
        self._journal = journal
        self._start = start
        self._row_bytes = row_bytes

    def write(self, sizes: Mapping[int, int], annotations: Float16[np.ndarray, "B L D"]) -> None:
        """Write some rows.

        Args:
            sizes: rows and the bytes of their photos.
            annotations: their vectors, in the same order.

        Raises:
            InputError: the disk is full or faulty.
        """
        try:
            for row, vectors in zip(sizes, annotations, strict=True):
                self._write_at(self._start + row * self._row_bytes, vectors.tobytes())
            os.fsync(self._file)
            self._journal.write("".join(f"{row} {size}\n" for row, size in sizes.items()))
            self._journal.flush()
        except OSError as error:
            raise InputError(
                f"features cannot be written ({error.strerror}); check the disk and start again: "
                "finished photos are kept"
            ) from None

    def _write_at(self, offset: int, content: bytes) -> None:
        while content:
            written = os.pwrite(self._file, content, offset)
            content, offset = content[written:], offset + written


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; the lock is released however the process ends.

    Raises:
        InputError: another process holds the lock, or the folder cannot be written to.
    """
    made_folder(folder)
    with (folder / LOCK).open("w") as file:
        try:
            # Not flock: worker processes would inherit the lock and might outlive this process.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise InputError(
                f"{folder}: another process is writing features there; wait for it, or give "
                "another place for the features"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def _header(shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of this shape."""
    header = io.BytesIO()
    description = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()
