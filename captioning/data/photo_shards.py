"""Photos inside larger files: Parquet and Arrow shards of Hugging Face, tar shards of WebDataset.

Such a photo has a path like any other, of its shard and its name there: ``00000.tar/000000007.jpg``
in a tar file, ``train-00000-of-00002.parquet/7`` for a row. Nothing is unpacked: each process opens
the shards of the photos that it reads. Arrow files are memory-mapped. The library `datasets` copies
Parquet files once to such a file in its cache, since their rows cannot be read one by one.
"""

import hashlib
import json
import os
import re
import tarfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.errors import InputError, as_input_error
from captioning.untrusted import opened

SUFFIXES = (".tar", ".parquet", ".arrow")

USUAL = re.compile(r"(.*[._-])?\d{5,7}\.tar|.+-\d+-of-\d+\.(parquet|arrow)|dataset\.arrow")
"""Names of shards as their libraries and img2dataset write them."""

OF_PHOTOS = ("jpg", "jpeg", "png", "webp", "avif", "bmp", "gif", "jp2", "tif", "tiff")
"""Endings of the photos in a tar file."""

MOST_OPEN = 128
"""Shards whose contents a process caches; the names in a tar file take some megabytes."""


class Shard(ABC):
    """The photos in a file, and what is known of each.

    Attributes:
        photos: their names in the file.
    """

    photos: list[str]

    @abstractmethod
    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name of a photo and its other data, by column; a photo may have several rows."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The bytes of a photo; None if there is none of this name."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a photo that has a size."""


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
    return (file / name for name in _shard_of(file).photos)


def shard_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows: a photo's path below the shard's folder as ``file_name``, and other columns.

    Absent values are empty text. A photo has several rows where it is stored again for each of its
    captions.

    Raises:
        InputError: the shard cannot be read, has no photos, or needs a library that is not
            installed.
    """
    its = _shard_of(file)
    with _errors_of(file):
        for name, row in its.rows():
            known = {key: "" if value is None else value for key, value in row.items()}
            yield known | {"file_name": f"{file.name}/{name}"}


def photo_size(photo: Path) -> int | None:
    """The size of a photo in bytes, in a shard or not; None if it is missing."""
    if place := _place(photo):
        return _shard_of(place[0]).size(place[1])
    try:
        return os.stat(photo).st_size  # noqa: PTH116 - a Path raises if a name is too long
    except (OSError, ValueError):
        return None


@contextmanager
def opened_photo(photo: str | Path) -> Iterator[BufferedReader | BytesIO]:
    """A photo's open file, in a shard or not.

    Raises:
        InputError: it is missing or cannot be read.
    """
    if not (place := _place(Path(photo))):
        with opened(photo) as file:
            yield file
        return
    its = _shard_of(place[0])
    if its.size(place[1]) is None:
        raise InputError(f"{photo}: no such photo in {place[0].name}; check the name")
    with BytesIO(its.read(place[1])) as content:
        yield content


def _shard_of(file: Path) -> Shard:
    status = file.stat()
    return _shard(file, status.st_size, status.st_mtime_ns)


@lru_cache(MOST_OPEN)
def _shard(file: Path, *state: int) -> Shard:
    """A shard, until the state of its file changes."""
    with _errors_of(file):
        found: Shard = _Tar(file) if file.suffix.lower() == ".tar" else _Rows(file)
    if not found.photos:
        raise InputError(f"{file}: no photos inside; give the files that hold them")
    return found


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    """Turn what libraries raise into errors of one line."""
    try:
        yield
    except InputError:
        raise
    except ImportError:
        name = "webdataset" if file.suffix.lower() == ".tar" else "datasets"
        raise InputError(
            f"{file}: needs the extra {name}; run pip install 'captioning[{name}]'"
        ) from None
    except Exception as error:  # of several libraries, which raise nearly anything
        cause = error.__cause__ or error
        if isinstance(cause, OSError) and cause.strerror:
            raise as_input_error(cause, file, "cannot be read") from None
        reason = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise InputError(
            f"{file}: damaged or cut short ({reason}); copy or download it again"
        ) from None


def _place(photo: Path) -> tuple[Path, str] | None:
    """The shard of a photo and its name there; None if it is in no shard."""
    file = next(filter(is_shard, photo.parents), None)
    return None if file is None else (file, photo.relative_to(file).as_posix())


class _Tar(Shard):
    """A tar file, in which the files of a sample have one name and different suffixes."""

    def __init__(self, file: Path) -> None:
        from webdataset.tariterators import group_by_keys

        self._file = file
        self._places: dict[str, tuple[int, int]] = {}  # first byte and number of bytes
        with opened(file) as content, tarfile.open(fileobj=content) as archive:
            for member in archive:
                name = PurePosixPath(member.name.lstrip("/")).as_posix()
                if member.isreg() and ".." not in name.split("/"):
                    self._places[name] = member.offset_data, member.size
        # The library gets names in place of contents, so no photo is read here.
        named = ({"fname": name, "data": name, "__url__": str(file)} for name in self._places)
        self.photos, self._texts = [], []
        for sample in group_by_keys(named):
            photo = next((sample[suffix] for suffix in OF_PHOTOS if suffix in sample), None)
            if photo is not None:
                self.photos.append(photo)
                self._texts.append((sample.get("json"), sample.get("txt")))

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for photo, (data, caption) in zip(self.photos, self._texts, strict=True):
            row = json.loads(self.read(data)) if data else {}
            yield photo, row | ({"caption": self.read(caption).decode()} if caption else {})

    def size(self, name: str) -> int | None:
        return self._places[name][1] if name in self._places else None

    def read(self, name: str) -> bytes:
        start, size = self._places[name]
        with opened(self._file) as file:  # of its own, since threads and processes read at once
            file.seek(start)
            return file.read(size)


class _Rows(Shard):
    """A Parquet or Arrow file with a column of photos: bytes, or objects with bytes and path.

    A photo's name is the number of the first row that has it.
    """

    def __init__(self, file: Path) -> None:
        import datasets

        datasets.disable_progress_bars()
        is_arrow = file.suffix.lower() == ".arrow"
        read = datasets.Dataset.from_file if is_arrow else datasets.Dataset.from_parquet
        table = read(str(file)).data.table
        contents = {field.name: _bytes_of(table[field.name]) for field in table.schema}
        columns = [name for name, content in contents.items() if content is not None]
        self._contents = contents[columns[0]] if columns else []
        self._others = table.drop_columns(columns)
        self._names = _names_of(self._contents)
        self.photos = list(dict.fromkeys(self._names))

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        others = self._others.to_pylist() or [{} for _ in self._names]
        return zip(self._names, others, strict=True)

    def size(self, name: str) -> int | None:
        number = int(name) if re.fullmatch(r"\d{1,18}", name) else len(self._contents)
        content = self._contents[number] if number < len(self._contents) else None
        return len(content.as_buffer()) if content is not None and content.is_valid else None

    def read(self, name: str) -> bytes:
        content: bytes = self._contents[int(name)].as_py()
        return content


def _bytes_of(column: Any) -> Any:
    """The bytes of a column of photos; None if it is another column."""
    from pyarrow import compute, types

    if types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = compute.struct_field(column, "bytes")
    kind = column.type
    return column if types.is_binary(kind) or types.is_large_binary(kind) else None


def _names_of(contents: Any) -> list[str]:
    """For each row the number of the first one with the same photo; only equal sizes are read."""
    from pyarrow import compute

    sizes = compute.binary_length(contents).to_pylist() if len(contents) else []
    count = Counter(sizes)
    firsts: dict[object, int] = {}
    names = []
    for number, size in enumerate(sizes):
        key: object = number
        if size is not None and count[size] > 1:
            key = hashlib.sha256(contents[number].as_buffer()).digest()
        names.append(str(firsts.setdefault(key, number)))
    return names
