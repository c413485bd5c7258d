"""Photos inside larger files: Parquet and Arrow shards of Hugging Face, tar shards of WebDataset.

Such a photo has a path like any other, of its shard and its name there: ``00000.tar/000000007.jpg``
in a tar file, ``train-00000-of-00002.parquet/7`` for a row. Nothing is unpacked or copied. Arrow
files are memory-mapped; of a Parquet file, the photo's row group is read up to the photo.
"""

import hashlib
import json
import os
import re
import tarfile
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from io import BufferedReader, BytesIO
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.errors import InputError, reading
from captioning.files import opened

SUFFIXES = (".tar", ".parquet", ".arrow")

USUAL = re.compile(r"(.*[._-])?\d{5,7}\.tar|.+-\d+-of-\d+\.(parquet|arrow)|dataset\.arrow")
"""Names of shards as their libraries and img2dataset write them."""

OF_PHOTOS = ("jpg", "jpeg", "png", "webp", "avif", "bmp", "gif", "jp2", "tif", "tiff")
"""Endings of the photos in a tar file."""

MOST_BYTES = 200_000_000
"""The most bytes of a photo or another value in a shard."""

BLOCK_ROWS = 16  # of Parquet that are in memory at a time
DIGEST = partial(hashlib.blake2b, digest_size=16)

MOST_OPEN = 128
"""Shards whose contents a process caches; the names in a tar file take some megabytes."""


def shards_in(folder: Path, usual: bool = False) -> list[Path]:
    """The shards in a folder, else below it, of one kind; only `usual` names, if asked for."""
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
    """The paths of the photos in a shard; raises as `shard_rows`."""
    return (file / name for name in _shard_of(file).sizes)


def shard_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows: a photo's path below the shard's folder as ``file_name``, and other columns.

    Absent values are empty text. A photo has several rows where it is stored again for each of its
    captions.

    Raises:
        InputError: the shard cannot be read, or has no photos.
    """
    its = _shard_of(file)
    with _reading(file):
        for name, row in its.rows():
            known = {key: "" if value is None else value for key, value in row.items()}
            yield known | {"file_name": f"{file.name}/{name}"}


def photo_size(photo: Path) -> int | None:
    """The size of a photo in bytes, in a shard or not; None if it is missing."""
    if file := next(filter(is_shard, photo.parents), None):
        return _shard_of(file).sizes.get(photo.relative_to(file).as_posix())
    try:
        return os.stat(photo).st_size  # noqa: PTH116 - a Path raises if a name is too long
    except (OSError, ValueError):
        return None


@contextmanager
def opened_photo(path: str | Path) -> Iterator[BufferedReader | BytesIO]:
    """A photo's open file, in a shard or not."""
    photo = Path(path)
    file = next(filter(is_shard, photo.parents), None)
    if file is None:
        with opened(path) as whole:
            yield whole
        return
    if (size := photo_size(photo)) is None:
        raise InputError(f"{photo}: no such photo in {file.name}; check the name")
    if size > MOST_BYTES:
        raise InputError(f"{photo}: more than {MOST_BYTES / 1e6:.0f} MB")
    with _reading(file):
        content = _shard_of(file).read(photo.relative_to(file).as_posix())
    yield BytesIO(content)


def photo_hash(photo: Path) -> str | None:
    """A hash of a photo's content, in a shard or not; None if it is missing."""
    if photo_size(photo) is None:
        return None
    with opened_photo(photo) as file:
        return hashlib.file_digest(file, DIGEST).hexdigest()


def _shard_of(file: Path) -> "TarShard | RowShard":
    status = file.stat()
    return _shard(file, status.st_size, status.st_mtime_ns)


@lru_cache(MOST_OPEN)
def _shard(file: Path, *state: int) -> "TarShard | RowShard":
    with _reading(file):
        found = TarShard(file) if file.suffix.lower() == ".tar" else RowShard(file)
    if not found.sizes:
        raise InputError(f"{file}: no photos inside; give the files that hold them")
    return found


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        with reading(f"{file}: damaged or cut short", tarfile.TarError):
            yield
    except ImportError:
        raise InputError(
            f"{file}: needs the extra datasets; run pip install 'captioning[datasets]'"
        ) from None


class TarShard:
    """A tar file, in which the files of a sample have one name and different suffixes.

    Attributes:
        sizes: the bytes of each photo by its name in the file; None if it has no content.
    """

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
        self.sizes: dict[str, int | None] = {}
        self._texts: list[tuple[str, str | None, str | None]] = []
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


class RowShard:
    """A Parquet or Arrow file with a column of photos: bytes, or objects with bytes and path.

    A photo's name is the number of the first row that has it. As `TarShard` otherwise.
    """

    def __init__(self, file: Path) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetFile
        from pyarrow.types import is_binary, is_large_binary

        self._file, self._table, self._starts = file, None, [0]
        if file.suffix.lower() == ".arrow":
            self._table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all()
            schema = self._table.schema
        else:
            self._metadata, schema = ParquetFile(file).metadata, ParquetFile(file).schema_arrow
            for index in range(self._metadata.num_row_groups):
                group = self._metadata.row_group(index)
                if group.total_byte_size > MOST_BYTES * max(1, group.num_rows):
                    raise InputError(f"{file}: holds values of more than {MOST_BYTES / 1e6:.0f} MB")
                self._starts.append(self._starts[-1] + group.num_rows)
        self._cached = lru_cache(2)(self._block)
        kinds = {
            name: kind.field("bytes").type if _has_bytes(kind) else kind
            for name, kind in zip(schema.names, schema.types, strict=True)
        }
        photos = [name for name, kind in kinds.items() if is_binary(kind) or is_large_binary(kind)]
        self._photos, self._texts = photos[:1], [name for name in kinds if name not in photos]
        self._names: list[str] = []  # of each row's photo
        self.sizes: dict[str, int | None] = {}
        firsts: dict[object, str] = {}
        for cell in chain.from_iterable(map(_cells, self._batches(self._photos))):
            number = str(len(self._names))
            size = len(cell.as_buffer()) if cell.is_valid else None
            key: object = number
            if size is not None and size <= MOST_BYTES:
                key = DIGEST(cell.as_buffer()).digest()
            self._names.append(firsts.setdefault(key, number))
            self.sizes.setdefault(self._names[-1], size)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        rows = chain.from_iterable(batch.to_pylist() for batch in self._batches(self._texts))
        return zip(self._names, rows, strict=False)

    def read(self, name: str) -> bytes:
        if self._table is not None:
            return next(_cells(self._table.select(self._photos).slice(int(name), 1))).as_py()
        group = bisect(self._starts, int(name)) - 1
        block, row = divmod(int(name) - self._starts[group], BLOCK_ROWS)
        return self._cached(group, block)[row]

    def _block(self, group: int, block: int) -> list[bytes]:
        """The photos of some rows of Parquet."""
        batch = next(islice(self._batches(self._photos, group), block, None))
        return [cell.as_py() for cell in _cells(batch)]

    def _batches(self, columns: list[str], group: int | None = None) -> Iterator[Any]:
        """Record batches of a few rows each, of all row groups or of one."""
        if not columns:
            return iter(())
        if self._table is not None:
            return iter(self._table.select(columns).to_batches(max_chunksize=BLOCK_ROWS))
        from pyarrow.parquet import ParquetFile

        file = ParquetFile(self._file, metadata=self._metadata)
        groups = range(file.num_row_groups) if group is None else [group]
        return file.iter_batches(BLOCK_ROWS, groups, columns, use_threads=False)


def _has_bytes(kind: Any) -> bool:
    from pyarrow.types import is_struct

    return is_struct(kind) and kind.get_field_index("bytes") >= 0


def _cells(rows: Any) -> Iterator[Any]:
    """The photos in the first column, which may be objects."""
    column = rows.column(0)
    inside = _has_bytes(column.type)
    return (cell["bytes"] if inside and cell.is_valid else cell for cell in column)
