"""One's own photos and captions: in a table, in a text file beside each photo, or in photos."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path, PureWindowsPath

from captioning.data.descriptions import Descriptions, Source
from captioning.data.images import IMAGE_SUFFIXES, raw_twins
from captioning.data.photo_files import PARQUET
from captioning.data.readers import dataset_files
from captioning.data.readers.data_set import BY_MODEL, MALFORMED, SHADOWED, DataSet, Problem
from captioning.data.readers.fields import shown_names
from captioning.data.readers.reader import Reader, Row, SplitsAndProblems, read_files
from captioning.data.readers.rows import JSON_LINES, has_columns, is_photo_name, read_table
from captioning.data.splits import SPLITS, split_in, split_name
from captioning.errors import InputError
from captioning.files import opened, read_text, walk

TABLES = ("captions.csv", "captions.jsonl")
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # Hugging Face's imagefolder
PUBLISHED = (("captions.tsv",), ("captions.txt",), ("results.csv",), ("results_*.token",))
USUAL = (TABLES, *PUBLISHED, METADATA)
SUFFIXES = (".csv", ".tsv", *JSON_LINES, ".token")
TEXT_SUFFIXES = (".caption", ".txt")


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
        is_table = root.suffix.lower() in SUFFIXES or root.name in METADATA
        return is_table if root.is_file() else bool(_usual_tables(root))

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return _names_photos(root) if root.is_file() else bool(_other_tables(root))

    def read(self) -> DataSet:
        files = [self.root] if self.root.is_file() else self._table_files()
        if not files:
            raise InputError(f"{self.root}: no {' or '.join(TABLES)} here; give the file's path")
        is_single = len(files) == 1 and files[0].parent == self.folder
        files_with_splits: list[tuple[str, Path]] = []
        for file in files:
            split = None if is_single else _split_of(file.relative_to(self.folder))
            files_with_splits.append((split or "", file))
        return self.make_data_set(*read_files(files_with_splits, self._read_file))

    def _read_file(self, file: Path, split: str) -> SplitsAndProblems:
        subfolder = file.parent.relative_to(self.folder)
        table = read_table(file, self.caption_column, self.photo_column)
        rows = [
            row._replace(split=row.split or split, image_id=(subfolder / row.name).as_posix())
            for row in table.rows
        ]
        if file.name in METADATA and not any(row.split for row in rows):
            rows = _split_by_folder(rows)
        first_folder, *other_folders = dataset_files.photo_folders(file.parent, self.folder)
        if self.images is not None:
            first_folder, other_folders = self.images / subfolder, [self.images]
        split_folders = dataset_files.folders_of(split, [first_folder]) if split else []
        folders = [first_folder, *split_folders, *other_folders]
        # Another split's folder may hold photos of the same names; TextCaps' holds the photos.
        folder_split = split if file.parent != self.folder else None
        records = self.make_records(rows, file, folders, split=folder_split, required=False)
        return records, [replace(problem, split=split or None) for problem in table.problems]

    def _table_files(self) -> list[Path]:
        files = _usual_tables(self.root) or _other_tables(self.root)
        names = [file.relative_to(self.root) for file in files]
        if len({(name.parent, _split_of(name)) for name in names}) < len(names):
            raise InputError(
                f"{self.root}: holds {shown_names(names)}; give the path of one of them"
            )
        return files


class Sidecar(Reader):
    """Photos such as ``photo.jpg``, and beside each a ``photo.txt`` with one caption a line.

    A file may be called ``photo.jpg.txt``, ``photo.caption`` or ``photo.jpg.caption``, too. With
    `captions_from`, captions are the descriptions that photos carry instead.

    The id of a photo is its path below `root`. Its split is the name of the uppermost folder if all
    of these name splits, such as train and validation; else a hash of the id decides.

    Args:
        root: the folder of the data set.
        images: folder of the photos and text files; by default `root`.
        val_fraction: see `Reader`.
        captions_from: iptc or exif for what is in the photos; xmp for that, too, and for
            ``photo.jpg.xmp`` and ``photo.xmp``, which come first. Without those that a model wrote.
    """

    def __init__(
        self,
        root: str | Path,
        images: str | Path | None = None,
        val_fraction: float | None = None,
        captions_from: Source | None = None,
    ) -> None:
        super().__init__(root, images, val_fraction)
        self.captions_from = captions_from

    @classmethod
    def resembles(cls, root: Path) -> bool:
        return any(text_files for _, text_files in _photos_with_texts(root))

    def read(self) -> DataSet:
        folder = self.images or self.root
        rows: list[Row] = []
        problems: list[Problem] = []

        def add_problem(error: OSError) -> None:
            problems.append(Problem(MALFORMED, f"{error.filename}: {error.strerror}"))

        for photo, text_files in _photos_with_texts(folder, add_problem):
            try:
                if self.captions_from is None:
                    texts = [read_text(file) for file in text_files[:1]]
                    lines = [line for text in texts for line in text.splitlines()]
                    problems += [Problem(SHADOWED, str(file)) for file in text_files[1:]]
                else:
                    descriptions = Descriptions(photo)
                    lines = [" ".join(descriptions.of_people(self.captions_from).split())]
                    if not lines[0] and descriptions.texts(self.captions_from):
                        problems.append(Problem(BY_MODEL, str(photo)))
                        continue
            except InputError as error:
                problems.append(Problem(MALFORMED, str(error)))
                continue
            name = photo.relative_to(folder).as_posix()
            captions = list(filter(None, map(str.strip, lines)))
            rows.append(Row(name, captions, None, name))
        if not any(row.captions for row in rows):
            advice = "put a text file beside each photo, photo.txt for photo.jpg"
            if self.captions_from is not None:
                advice = f"its photos carry none by people in {self.captions_from.upper()}"
            raise InputError(f"{folder}: no captions; {advice}")
        records = self.make_records(_split_by_folder(rows), folder, [folder])
        return self.make_data_set(records, problems)


def _split_by_folder(rows: list[Row]) -> list[Row]:
    """The rows with their uppermost folders as splits, if all are splits."""
    splits = [split_name(row.name.partition("/")[0]) for row in rows]
    if not set(splits) <= set(SPLITS):
        return rows
    return [row._replace(split=split) for row, split in zip(rows, splits, strict=True)]


def _photos_with_texts(
    folder: Path, unreadable: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, list[Path]]]:
    """Every photo in and below a folder in order, and its text files, of which the first counts."""
    for parent, _, names in walk(folder, unreadable):
        files = [parent / name for name in names]
        texts: dict[str, list[Path]] = defaultdict(list)
        for suffix in TEXT_SUFFIXES:
            for file in files:
                if file.suffix.lower() == suffix:
                    texts[file.stem].append(file)
        twins = raw_twins(names)
        for file in files:
            if file.suffix.lower() in IMAGE_SUFFIXES and file.name not in twins:
                yield file, texts.get(file.name, texts.get(file.stem, []))  # photo.jpg.txt first


def _usual_tables(root: Path) -> list[Path]:
    """The tables of the first usual name: those in the folder, else one in each folder below."""
    for patterns, depth in product(USUAL, ("", "*/", "*/*/")):
        files = sorted(file for pattern in patterns for file in root.glob(depth + pattern))
        if patterns != TABLES:  # whose names leave no doubt
            files = [file for file in files if _names_photos(file)]
        if files:
            return files
    return []


def _other_tables(root: Path) -> list[Path]:
    """The tables of other names in a folder: those of splits if there are some, else all."""
    photos = [path for path in root.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    photo_names = {name for photo in photos for name in (photo.name, photo.stem)}
    files = dataset_files.json_files(root)
    for suffix in (*SUFFIXES, ".txt"):
        files_of_suffix = sorted(root.glob(f"*{suffix}"))
        if len(files_of_suffix) <= dataset_files.MAX_FILES:  # else each is of one photo
            files += files_of_suffix
    tables = []
    for file in files:
        # a.jpg.json and a.json describe a.jpg
        beginnings = accumulate(file.name.split(".")[:-1], "{}.{}".format)
        if photo_names.isdisjoint(beginnings) and _names_photos(file):
            tables.append(file)
    return [table for table in tables if _split_of(table.relative_to(root))] or tables


def _names_photos(file: Path) -> bool:
    """Whether the beginning of a file has the columns of a table or the name of a photo."""
    if file.name in METADATA and file.suffix == PARQUET:
        return True
    try:
        with opened(file) as content:
            beginning = content.read(65_536).decode(errors="replace").replace("\0", "")
    except InputError:  # whoever reads the file says why it cannot
        return False
    if file.suffix.lower() == ".txt" and not re.match(r"[^,;\t|\n]+[,;\t|]", beginning):
        return False  # a list of photos, or one photo's captions
    cells = re.split(r'[,;\t|\r\n"]', beginning)
    key = re.match(r'\s*\{\s*"([^"]+)"\s*:', beginning) if file.suffix.lower() == ".json" else None
    return (
        has_columns(cells)
        or any(map(is_photo_name, cells))
        or (key is not None and _is_stem(PureWindowsPath(key[1]).name, file.parent))
    )


def _is_stem(name: str, folder: Path) -> bool:
    """Whether it is the name without suffix of a photo in one of the usual folders."""
    return any(
        path.stem == name and path.suffix.lower() in IMAGE_SUFFIXES
        for photo_folder in dataset_files.photo_folders(folder)
        if photo_folder.is_dir()
        for path in photo_folder.iterdir()
    )


def _split_of(path: Path) -> str | None:
    """The split that the name of a table or of a folder around it has, the outermost first."""
    return next(filter(None, map(split_in, path.with_suffix("").parts)), None)
