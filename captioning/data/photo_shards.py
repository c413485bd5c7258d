"""Photos inside larger files: Parquet and Arrow shards of Hugging Face, tar shards of WebDataset.

Such a photo has a path like any other, of its shard and its name there: ``00000.tar/000000007.jpg``
in a tar file, ``train-00000-of-00002.parquet/7`` for a row. Nothing is unpacked or copied: each
process opens the shards of the photos that it reads. Arrow files are memory-mapped; of a Parquet
file, the photo's row group is read up to the photo.
"""

import hashlib
import json
import os
import re
import tarfile
from bisect import bisect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BufferedReader, BytesIO
from itertools import accumulate, groupby
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.errors import InputError, reading
from captioning.untrusted import opened

SUFFIXES = (".tar", ".parquet", ".arrow")

USUAL = re.compile(r"(.*[._-])?\d{5,7}\.tar|.+-\d+-of-\d+\.(parquet|arrow)|dataset\.arrow")
"""Names of shards as their libraries and img2dataset write them."""

OF_PHOTOS = ("jpg", "jpeg", "png", "webp", "avif", "bmp", "gif", "jp2", "tif", "tiff")
"""Endings of the photos in a tar file."""

MOST_BYTES = 200_000_000
"""The most bytes of a photo or another value in a shard."""

BLOCK_BYTES, BLOCK_ROWS = 64_000_000, 16  # of photos of Parquet that are in memory at a time

MOST_OPEN = 128
"""Shards whose contents a process caches; the names in a tar file take some megabytes."""


def shards_in(folder: Path, usual: bool = False) -> list[Path]:
    """The shards in a folder, else those in the folders below it, of one kind.

    Args:
        folder: of a data set.
        usual: leave out names that the libraries do not give.
    """
    for depth in ("", "*/", "*/*/"):
        for suffix in SUFFIXES:  # img2dataset's tar files first, before its Parquet without photos
            found = [
                path
                for path in sorted(folder.glob(f"{depth}*{suffix}"))
                if not any(part.startswith(".") for part in path.relative_to(folder).parts)
                if not path.name.startswith("cache-")  # of what was computed by `datasets`
                if not usual or USUAL.fullmatch(path.name)
            ]
            if found:
                return found
    return []


def is_shard(path: str | Path) -> bool:
    """Whether a path is a file with the suffix of a shard."""
    return str(path).lower().endswith(SUFFIXES) and os.path.isfile(path)  # noqa: PTH113 - long names


def photos_in(file: Path) -> Iterator[Path]:
    """The paths of the photos in a shard.

    Raises:
        InputError: as for `shard_rows`.
    """
    return (file / name for name in _shard_of(file).sizes)


def shard_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows: a photo's path below the shard's folder as ``file_name``, and other columns.

    Absent values are empty text. A photo has several rows where it is stored again for each of its
    captions.

    Raises:
        InputError: the shard cannot be read, has no photos, or needs a library that is not
            installed.
    """
    its = _shard_of(file)
    with _reading(file):
        for name, row in its.rows():
            known = {key: "" if value is None else value for key, value in row.items()}
            yield known | {"file_name": f"{file.name}/{name}"}


def photo_size(photo: Path) -> int | None:
    """The size of a photo in bytes, in a shard or not; None if it is missing."""
    if place := _place(photo):
        return _shard_of(place[0]).sizes.get(place[1])
    try:
        return os.stat(photo).st_size  # noqa: PTH116 - a Path raises if a name is too long
    except (OSError, ValueError):
        return None


@contextmanager
def opened_photo(photo: str | Path) -> Iterator[BufferedReader | BytesIO]:
    """A photo's open file, in a shard or not.

    Raises:
        InputError: it is missing, too large or cannot be read.
    """
    if not (place := _place(Path(photo))):
        with opened(photo) as whole:
            yield whole
        return
    its, (file, name) = _shard_of(place[0]), place
    if (size := its.sizes.get(name)) is None:
        raise InputError(f"{photo}: no such photo in {file.name}; check the name")
    if size > MOST_BYTES:
        raise InputError(f"{photo}: more than {MOST_BYTES / 1e6:.0f} MB")
    with _reading(file):
        content = its.read(name)
    yield BytesIO(content)


def photo_hash(photo: Path) -> str | None:
    """A hash of a photo's content, in a shard or not; None if it is missing."""
    if photo_size(photo) is None:
        return None
    with opened_photo(photo) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _shard_of(file: Path) -> "_Tar | _Rows":
    status = file.stat()
    return _shard(file, status.st_size, status.st_mtime_ns)


@lru_cache(MOST_OPEN)
def _shard(file: Path, *state: int) -> "_Tar | _Rows":
    """A shard, until the state of its file changes."""
    with _reading(file):
        found = _Tar(file) if file.suffix.lower() == ".tar" else _Rows(file)
    if not found.sizes:
        raise InputError(f"{file}: no photos inside; give the files that hold them")
    return found


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """What is raised while a shard is read as errors of one line."""
    try:
        with reading(f"{file}: damaged or cut short", tarfile.TarError):
            yield
    except ImportError:
        raise InputError(
            f"{file}: needs the extra datasets; run pip install 'captioning[datasets]'"
        ) from None


def _place(photo: Path) -> tuple[Path, str] | None:
    """The shard of a photo and its name there; None if it is in no shard."""
    file = next(filter(is_shard, photo.parents), None)
    return None if file is None else (file, photo.relative_to(file).as_posix())


class _Tar:
    """A tar file, in which the files of a sample have one name and different suffixes.

    Attributes:
        sizes: the bytes of each photo by its name in the file; None if it has no content.
    """

    sizes: dict[str, int | None]

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}  # first byte and number of bytes
        with opened(file) as content, tarfile.open(fileobj=content) as archive:
            for member in archive:
                name = PurePosixPath(member.name.lstrip("/")).as_posix()
                if member.isreg() and ".." not in name.split("/"):
                    self._places[name] = member.offset_data, member.size
        # As WebDataset has it: a sample's files follow each other, and have one name up to the
        # first dot.
        self.sizes, self._texts = {}, []
        parts = (re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]*)", name) for name in self._places)
        for _, sample in groupby(filter(None, parts), key=lambda part: part[1]):
            names = {part[2].lower(): part[0] for part in sample}
            if photo := next((names[suffix] for suffix in OF_PHOTOS if suffix in names), None):
                self.sizes[photo] = self._places[photo][1]
                self._texts.append((photo, names.get("json"), names.get("txt")))

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name of a photo and its other data, by column; a photo may have several rows."""
        for photo, data, text in self._texts:
            row = {}
            if data:
                with reading(self._file / data):
                    row = dict(json.loads(self.read(data)))
            yield photo, row | ({"caption": self.read(text).decode()} if text else {})

    def read(self, name: str) -> bytes:
        """The content of a photo that has a size."""
        start, size = self._places[name]
        with opened(self._file) as file:  # of its own, since threads and processes read at once
            file.seek(start)
            return file.read(min(size, MOST_BYTES))


class _Rows:
    """A Parquet or Arrow file with a column of photos: bytes, or objects with bytes and path.

    A photo's name is the number of the first row that has it. As `_Tar` otherwise.
    """

    def __init__(self, file: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        self._file, self._metadata, self._batches = file, None, []
        if file.suffix.lower() == ".arrow":
            table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all()
            self._batches, schema = table.to_batches(), table.schema
            lengths = [len(batch) for batch in self._batches]
            self._steps = [BLOCK_ROWS] * len(lengths)
        else:
            whole = parquet.ParquetFile(file)
            self._metadata, schema = whole.metadata, whole.schema_arrow
            groups = [whole.metadata.row_group(i) for i in range(whole.num_row_groups)]
            lengths = [group.num_rows for group in groups]
            means = [
                max(group.column(i).total_uncompressed_size for i in range(group.num_columns))
                // max(1, group.num_rows)
                for group in groups
            ]
            if max(means, default=0) > MOST_BYTES:
                raise InputError(f"{file}: holds values of more than {MOST_BYTES / 1e6:.0f} MB")
            self._steps = [max(1, min(BLOCK_ROWS, BLOCK_BYTES // (mean + 1))) for mean in means]
        self._starts = list(accumulate(lengths, initial=0))
        columns = [part.name for part in schema if _is_of_photos(part.type)]
        self._texts = [name for name in schema.names if name not in columns]
        self._photos = columns[:1]
        self.sizes: dict[str, int | None] = {}
        self._names: list[str] = []
        self._cached = lru_cache(2)(self._block)
        firsts: dict[object, str] = {}
        for number, cell in enumerate(self._all_photos()):
            size = len(cell.as_buffer()) if cell.is_valid else None
            key: object = number
            if size is not None and size <= MOST_BYTES:
                key = hashlib.blake2b(cell.as_buffer(), digest_size=16).digest()
            self._names.append(firsts.setdefault(key, str(number)))
            self.sizes.setdefault(self._names[-1], size)

    def _all_photos(self) -> Iterator[Any]:
        for group in range(len(self._steps) if self._photos else 0):
            for batch in self._parts(group, self._photos):
                yield from _cells(batch)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        names = iter(self._names)
        for group in range(len(self._steps)):
            for batch in self._parts(group, self._texts):
                yield from zip(names, batch.to_pylist(), strict=False)

    def read(self, name: str) -> bytes:
        group = bisect(self._starts, int(name)) - 1
        block, row = divmod(int(name) - self._starts[group], self._steps[group])
        return self._cached(group, block)[row]

    def _block(self, group: int, block: int) -> list[bytes]:
        """The photos of some rows."""
        for number, batch in enumerate(self._parts(group, self._photos)):
            if number == block:
                return [cell.as_py() for cell in _cells(batch)]
        raise InputError(f"{self._file}: ends before its last row")

    def _parts(self, group: int, columns: list[str]) -> Iterable[Any]:
        """The record batches of a row group, of a few rows each."""
        step = self._steps[group]
        if self._metadata is None:
            batch = self._batches[group].select(columns)
            return (batch.slice(first, step) for first in range(0, len(batch), step))
        from pyarrow import parquet

        file = parquet.ParquetFile(self._file, metadata=self._metadata)
        return file.iter_batches(step, [group], columns, use_threads=False)


def _is_of_photos(kind: Any) -> bool:
    from pyarrow import types

    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return types.is_binary(kind) or types.is_large_binary(kind)


def _cells(batch: Any) -> Any:
    """The photos of a batch of their column."""
    from pyarrow import compute, types

    column = batch.column(0)
    return compute.struct_field(column, "bytes") if types.is_struct(column.type) else column
