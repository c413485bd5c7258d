"""The bytes of photos, in files of their own or in rows that the library `datasets` reads.

The photo of a row has a path like any other, of its data set, its split and its number there:
``flickr8k/train/17``, or with the name of its column ``flickr8k/train/17:photo``.
"""

import hashlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from io import BufferedReader, BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.splits import split_in
from captioning.errors import InputError
from captioning.files import MAX_BYTES, opened

DIGEST = partial(hashlib.blake2b, digest_size=16)
PARQUET, TAR = ".parquet", ".tar"
SAVED = ("dataset_dict.json", "state.json")  # written by `save_to_disk`


class SplitColumns(NamedTuple):
    """A split of a data set of `datasets`, which maps its files into memory."""

    photos: dict[str, Any]  # by column: the bytes of photos, or the paths of their files
    texts: Any  # the columns of text


@contextmanager
def opened_photo(path: str | Path) -> Iterator[BufferedReader | BytesIO]:
    """A photo's open file, or the bytes in its row."""
    content = _content(path)
    if content is None:
        raise InputError(f"{path}: no photo in this row")
    if isinstance(content, bytes):
        yield BytesIO(content)
    else:
        with opened(content) as file:
            yield file


def photo_size(path: str | Path) -> int | None:
    """The size of a photo in bytes; None if it is missing."""
    content = _content(path)
    if content is None or isinstance(content, bytes):
        return None if content is None else len(content)
    try:
        return os.stat(content).st_size  # noqa: PTH116 - a Path raises if a name is too long
    except (OSError, ValueError):
        return None


def photo_hash(path: str | Path) -> str | None:
    """A hash of a photo's content; None if it is missing."""
    if photo_size(path) is None:
        return None
    with opened_photo(path) as file:
        return hashlib.file_digest(file, DIGEST).hexdigest()


def holds_rows(root: Path, name: str = "*") -> bool:
    """Whether it is a Parquet file, a folder of `save_to_disk`, or has Parquet files of a name."""
    if root.is_file():
        return root.suffix.lower() == PARQUET
    return _is_saved(root) or holds_files(root, name + PARQUET)


def holds_files(root: Path, pattern: str) -> bool:
    """Whether a folder has files of this pattern, or one of the two levels of folders below."""
    return any(next(root.glob(depth + pattern), None) for depth in ("", "*/", "*/*/"))


@lru_cache
def columns_by_split(root: Path) -> dict[str, SplitColumns]:
    """Load the splits of a data set by name; an empty dictionary if `root` holds no rows.

    A folder of `save_to_disk` is mapped into memory as it is. Of Parquet files, the library writes
    Arrow files to its cache first, once.

    Args:
        root: the absolute path of a Parquet file, of a folder of such files, or of a folder of
            `save_to_disk`.

    Raises:
        InputError: the extra is missing, or the data set cannot be read or has no photos.
    """
    if not holds_rows(root):
        return {}
    with _datasets_library(root) as datasets:
        if _is_saved(root):
            tables = datasets.load_from_disk(str(root))
        else:  # by our list of files: a README in the folder may name addresses
            tables = datasets.load_dataset("parquet", data_files=parquet_files(root))
        splits = tables if isinstance(tables, dict) else {str(tables.split or "train"): tables}
        return {
            str(split): _split_columns(table, datasets.Image) for split, table in splits.items()
        }


def parquet_rows(file: Path) -> list[dict[str, Any]]:
    """The texts of a Parquet file, such as the names of photos and their captions, by row.

    Absent texts are empty.

    Raises:
        InputError: the extra is missing, or the file cannot be read.
    """
    with _datasets_library(file) as datasets:
        table = datasets.load_dataset("parquet", data_files=str(file), split="train")
        rows = _text_columns(table)[:].to_pylist()
    return [{name: "" if text is None else text for name, text in row.items()} for row in rows]


@contextmanager
def _datasets_library(path: Path) -> Iterator[Any]:
    """The library `datasets`, whose errors become one line.

    Raises:
        InputError: the extra is missing, or the block cannot read the data set at `path`.
    """
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"{path}: needs the extra datasets; run pip install 'captioning[datasets]'"
        ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        yield datasets
    except InputError:
        raise
    except Exception as error:  # of pyarrow or of any other library that it reads files with
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise InputError(f"{path}: not read by the library datasets: {reason}") from None


def parquet_files(root: Path) -> dict[str, list[str]]:
    """The Parquet files of a folder, or one file, by the split that their names begin with.

    The Hub's names are ``train-00000-of-00002.parquet``. Files of other names are of the split that
    their path names, else of train.

    Raises:
        InputError: files of a split are in several folders, so these are several data sets.
    """
    levels = (root.glob(depth + "*" + PARQUET) for depth in ("", "*/", "*/*/"))
    files = [root] if root.is_file() else sorted(filter(Path.is_file, chain.from_iterable(levels)))
    by_split: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        shard = re.fullmatch(r"(.+)-\d+-of-\d+", file.stem)
        path = file.relative_to(root.parent if root.is_file() else root)
        by_split[shard[1] if shard else split_in(str(path)) or "train"].append(file)
    for split, shards in by_split.items():
        if len(folders := sorted({str(file.parent) for file in shards})) > 1:
            raise InputError(f"{root}: {split} is in {' and '.join(folders[:2])}; give one of them")
    return {split: list(map(str, shards)) for split, shards in by_split.items()}


def _is_saved(root: Path) -> bool:
    return any((root / name).is_file() for name in SAVED)


def _split_columns(table: Any, image: Any) -> SplitColumns:
    """The columns of a split: photos are of the library's type `image`, or bytes.

    The first column of photos is the one called image, if there is one.
    """

    def has_photos(feature: Any) -> bool:
        content = feature.get("bytes") if isinstance(feature, dict) else feature
        return isinstance(content, image) or getattr(content, "dtype", "").endswith("binary")

    names = [name for name, feature in table.features.items() if has_photos(feature)]
    if not names:
        raise ValueError(
            f"no column of photos; its columns are {', '.join(table.column_names)} (a table of "
            "file_name and caption beside photos is called metadata.parquet)"
        )
    names.sort(key=lambda name: name != "image")
    texts = _text_columns(table)
    photos = {
        name: table.select_columns([name]).cast_column(name, image(decode=False)) for name in names
    }
    return SplitColumns(photos, texts)


def _text_columns(table: Any) -> Any:
    """The columns of text, and of lists of texts, in Arrow's format."""
    table.data.validate(full=True)  # else offsets of a damaged file end the process
    types = zip(table.data.schema.names, map(str, table.data.schema.types), strict=True)
    names = [name for name, dtype in types if "string" in dtype and "binary" not in dtype]
    columns = table.select_columns(names)
    if columns.data.nbytes > MAX_BYTES:  # a kilobyte of Parquet can hold gigabytes
        raise ValueError(f"more than {MAX_BYTES:,} bytes of text")
    return columns.with_format("arrow")


def _content(path: str | Path) -> bytes | str | Path | None:
    """The bytes of a photo in a row, or the path of a photo's file; None if the row has neither."""
    photo = Path(path)
    number, _, column = photo.name.partition(":")
    if not (number.isascii() and number.isdecimal()) or os.path.lexists(photo):
        return path
    splits = columns_by_split(Path(os.path.abspath(photo.parent.parent)))  # noqa: PTH100 - keeps links
    if not splits:
        return path
    if photo.parent.name not in splits:
        return None
    columns = splits[photo.parent.name].photos
    photos = columns.get(column) if column else next(iter(columns.values()))
    if photos is None or int(number) >= len(photos):
        return None
    [cell] = photos[int(number)].values()
    return None if cell is None else cell["bytes"] or cell["path"]
