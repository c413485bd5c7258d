"""One's own photos and captions: in a table, or in a text file beside each photo."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate, product
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES, raw_twins
from captioning.data.readers import dataset_files
from captioning.data.readers.reader import MALFORMED, Problem, Reader, Row, listed
from captioning.data.readers.rows import has_columns, names_photo, rows_of
from captioning.data.records import Record
from captioning.data.splits import SPLITS, split_in, split_name
from captioning.errors import InputError
from captioning.files import opened, text_of, walk

TABLES = ("captions.csv", "captions.jsonl")
METADATA = ("metadata.csv", "metadata.jsonl")  # Hugging Face's imagefolder
PUBLISHED = (("captions.tsv",), ("captions.txt",), ("results.csv",), ("results_*.token",))
USUAL = (TABLES, *PUBLISHED, METADATA)
SUFFIXES = (".csv", ".tsv", ".jsonl", ".token")


class CaptionTable(Reader):
    """Photos and a table of their names and captions: CSV, TSV, with semicolons or bars, or JSON.

    The table has a column of file names, relative to the photos' folder, and one of captions,
    called by usual names (file_name, image, ...; caption, text, comment, ...). Without a header,
    the first column has the photos, and the second of two the captions; others are called 2, 3 and
    so on.

    A column split assigns photos to splits; else the names of several tables or of their folders
    do, such as ``train/metadata.csv``; else a hash of a photo's name decides.

    Args:
        root: the folder that holds the table, or the path of the table.
        images: folder of the photos; by default the folder of the table, or wherever they are
            below.
        val_fraction: see `Reader`.
        caption_column: the column of the captions, if it is not called by one usual name.
        photo_column: the column of the photos' file names, likewise.
    """

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        val_fraction: float | None = None,
        caption_column: str | None = None,
        photo_column: str | None = None,
    ) -> None:
        super().__init__(root, images, val_fraction)
        self.caption_column, self.photo_column = caption_column, photo_column

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return root.suffix.lower() in SUFFIXES if root.is_file() else bool(_usual_tables(root))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return _names_photos(root) if root.is_file() else bool(_other_tables(root))

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        tables = [self.root] if self.root.is_file() else self._tables()
        if not tables:
            raise InputError(f"{self.root}: no {' or '.join(TABLES)} here; give the file's path")
        splits = [_split_of(file.relative_to(self.folder)) for file in tables]
        is_single = len(tables) == 1 and tables[0].parent == self.folder
        if is_single:
            splits = [None] * len(tables)
        records: defaultdict[str, list[Record]] = defaultdict(list)
        for file, split in zip(tables, splits, strict=True):
            below = file.parent.relative_to(self.folder)
            rows = [
                row._replace(split=row.split or split, image_id=(below / row.name).as_posix())
                for row in rows_of(file, problems, self.caption_column, self.photo_column)
            ]
            if file.name in METADATA and not any(row.split for row in rows):
                rows = _by_folder(rows)
            folders = dataset_files.photo_folders(file.parent, self.folder)
            if self.images is not None:
                folders = [self.images / below, self.images]
            # Another split's folder may hold photos of the same names; TextCaps' holds the photos.
            theirs = split if file.parent != self.folder else None
            folders[1:1] = dataset_files.folders_of(split, folders[:1]) if split else []
            for part, its in self._records(rows, file, folders, theirs, False).items():
                records[part] += its
        return records

    def _tables(self) -> list[Path]:
        found = _usual_tables(self.root) or _other_tables(self.root)
        names = [file.relative_to(self.root) for file in found]
        if len({(name.parent, _split_of(name)) for name in names}) < len(names):
            raise InputError(f"{self.root}: holds {listed(names)}; give the path of one of them")
        return found


class Sidecar(Reader):
    """Photos such as ``photo.jpg``, and beside each a ``photo.txt`` with one caption a line.

    The id of a photo is its path below `root`. Its split is the name of the uppermost folder if all
    of these name splits, such as train and validation; else a hash of the id decides.

    Args:
        root: the folder of the data set.
        images: folder of the photos and text files; by default `root`.
        val_fraction: see `Reader`.
    """

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return any(text is not None for _, text in _pairs(root))

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        folder, rows = self.images or self.root, []
        unreadable: list[OSError] = []
        for photo, text in _pairs(folder, unreadable.append):
            try:
                lines = [] if text is None else text_of(text).splitlines()
            except InputError as error:
                problems.append(Problem(MALFORMED, str(error)))
                continue
            name = photo.relative_to(folder).as_posix()
            captions = [caption for line in lines if (caption := line.strip())]
            rows.append(Row(name, captions, None, name))
        for fault in unreadable:
            problems.append(Problem(MALFORMED, f"{fault.filename}: {fault.strerror}"))
        if not any(row.captions for row in rows):
            raise InputError(
                f"{folder}: no captions; put a text file beside each photo, photo.txt for photo.jpg"
            )
        return self._records(_by_folder(rows), folder, [folder])


def _by_folder(rows: list[Row]) -> list[Row]:
    """The rows with their uppermost folders as splits, if all are splits."""
    tops = [split_name(row.name.partition("/")[0]) for row in rows]
    if not set(tops) <= set(SPLITS):
        return rows
    return [row._replace(split=top) for row, top in zip(rows, tops, strict=True)]


def _pairs(
    folder: Path, unreadable: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, Path | None]]:
    """Every photo in and below a folder in order, and its text file if there is one."""
    for parent, _, names in walk(folder, unreadable):
        inside = [parent / name for name in names]
        texts = {path.stem: path for path in inside if path.suffix.lower() == ".txt"}
        twins = raw_twins(names)
        for path in inside:
            if path.suffix.lower() in IMAGE_SUFFIXES and path.name not in twins:
                yield path, texts.get(path.name, texts.get(path.stem))  # photo.jpg.txt, photo.txt


def _usual_tables(root: Path) -> list[Path]:
    """The tables of the first usual name: those in the folder, else one in each folder below."""
    for kind, depth in product(USUAL, ("", "*/", "*/*/")):
        found = sorted(path for name in kind for path in root.glob(depth + name))
        if found := [path for path in found if kind is TABLES or _names_photos(path)]:
            return found
    return []


def _other_tables(root: Path) -> list[Path]:
    """The tables of other names in a folder: those of splits if there are some, else all."""
    photos = [path for path in root.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    photo_names = {name for path in photos for name in (path.name, path.stem)}
    files = dataset_files.json_files(root)
    for suffix in (*SUFFIXES, ".txt"):
        tables = sorted(root.glob(f"*{suffix}"))
        files += tables if len(tables) <= dataset_files.MOST_FILES else []  # of single photos
    tables = [
        file
        for file in files
        if photo_names.isdisjoint(accumulate(file.name.split(".")[:-1], "{}.{}".format))
        if _names_photos(file)
    ]
    return [file for file in tables if _split_of(file.relative_to(root))] or tables


def _names_photos(file: Path) -> bool:
    try:
        with opened(file) as content:
            start = content.read(65_536).decode(errors="replace").replace("\0", "")
    except InputError:  # whoever reads the file says why it cannot
        return False
    if file.suffix.lower() == ".txt" and not re.match(r"[^,;\t|\n]+[,;\t|]", start):
        return False  # a list of photos, or one photo's captions
    cells = re.split(r'[,;\t|\r\n"]', start)
    return has_columns(cells) or any(map(names_photo, cells))


def _split_of(path: Path) -> str | None:
    """The split that the name of a table or of a folder around it has, the outermost first."""
    return next(filter(None, map(split_in, path.with_suffix("").parts)), None)
