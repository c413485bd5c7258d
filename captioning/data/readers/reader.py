"""The interface of readers of data sets.

A reader has one method, `Reader.read`. It reads all files of a data set, once, and returns a
`DataSet`: the records of each split, and a problem for each row, file and object that was left out.
Whoever needs a split takes it from there, by `DataSet.records`; `check` adds what is wrong with the
photos. A command reads a data set once and hands on what it read.

The readers of this package work in three steps. Files become `Entry` values with their places, by
`numbered` or `parse_json_lines`, and `parse_entries` makes each a `Row`, or a problem; `read_table`
does both. `Reader.make_records` finds the photos, and `Reader.make_data_set` divides what has no
split.

A file that cannot be read is an `InputError` if the whole data set is in it; if it is one of
several, it is a problem of its split, and only those who ask for this split get an error.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from captioning.data.readers import dataset_files
from captioning.data.readers.data_set import UNREADABLE, DataSet, Problem
from captioning.data.readers.validation import with_validation
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.shelf import data_path

SplitsAndProblems = tuple[dict[str, list[Record]], list[Problem]]
"""The records of each split, those of no split under "", and what was left out."""


class Row(NamedTuple):
    """Captions of a photo; it may have others in other rows."""

    name: str  # of the photo, as the file says it
    captions: Sequence[str]
    split: str | None
    image_id: int | str


class Reader:
    """A data set in one file format. A subclass has `read`.

    Args:
        root: the folder of the data set, the file that describes it, or an address of the Hub, such
            as ``hf://datasets/owner/name@revision``.
        images: folder of the photos; the usual folders by default.
        val_fraction: share of the photos for validation if no split is val; by default a
            fifth. Unless it is 0, each split gets one.
    """

    captions_only = False
    """Whether photos are not looked for, so that a record's `image` is the name as written."""

    def __init__(
        self, root: str | Path, images: str | Path | None = None, val_fraction: float | None = None
    ) -> None:
        self.root = data_path(root)
        self.folder = self.root.parent if self.root.is_file() else self.root
        self.images = None if images is None else Path(images)
        self.val_fraction = val_fraction

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether the names of files in `root` are those of this format."""
        return False

    @classmethod
    def resembles(cls, root: Path) -> bool:
        """Whether files of any name hold this format; asked if no reader recognises `root`."""
        return False

    @property
    def folders(self) -> list[Path]:
        """The folder of the data set, and that of the photos if another one is given."""
        return [self.folder] if self.images is None else [self.folder, self.images]

    def read(self) -> DataSet:
        """Read all splits.

        Raises:
            InputError: there is nothing that can be read.
        """
        raise NotImplementedError

    def photo_paths(
        self,
        names: list[str],
        source: Path,
        folders: Sequence[Path] = (),
        *,
        split: str | None = None,
        required: bool = True,
    ) -> list[Path]:
        """The paths of the photos that a file names, in these or the usual folders.

        The arguments are those of `find_images`.
        """
        if self.captions_only:
            return list(map(Path, names))
        if not folders:
            usual = dataset_files.photo_folders(source.parent, self.folder)
            folders = usual if self.images is None else [self.images]
        return dataset_files.find_images(names, folders, source, split, required)

    def make_records(
        self,
        rows: Iterable[Row],
        source: Path,
        folders: Sequence[Path] = (),
        *,
        split: str | None = None,
        required: bool = True,
    ) -> dict[str, list[Record]]:
        """The records of a file's rows by split, those of no split under "".

        `split` and `required` are as in `photo_paths`; they change no record's split.
        """
        captions: dict[tuple[str, str, int | str], list[str]] = defaultdict(list)
        for row in rows:
            captions[row.split or "", row.name, row.image_id].extend(row.captions)
        names = [name for _, name, _ in captions]
        photos = self.photo_paths(names, source, folders, split=split, required=required)
        splits: dict[str, list[Record]] = defaultdict(list)
        for photo, key in zip(photos, captions, strict=True):
            record_split, _, image_id = key
            splits[record_split].append(Record(photo, image_id, tuple(captions[key])))
        return splits

    def make_data_set(
        self, splits: Mapping[str, Sequence[Record]], problems: Sequence[Problem]
    ) -> DataSet:
        """The data set of these records.

        Those under "" are split into train and val, as are those of train if there is no val.
        """
        if problems and not splits:
            raise InputError(problems[0].name)
        folder = Path()
        if self.captions_only:  # the photos are named as written
            folder = self.images or self.folder
        return DataSet(with_validation(splits, self.val_fraction, folder), problems, self.root)


def read_files(
    files: Iterable[tuple[str, Path]], read_file: Callable[[Path, str], SplitsAndProblems]
) -> SplitsAndProblems:
    """Read files that each have a split; one that cannot be read is a problem of its split.

    Raises:
        InputError: a file of no split, "", cannot be read.
    """
    splits: dict[str, list[Record]] = defaultdict(list)
    problems: list[Problem] = []
    for split, file in files:
        try:
            splits_of_file, problems_of_file = read_file(file, split)
        except InputError as error:
            if not split:
                raise
            splits_of_file = {split: []}
            problems_of_file = [Problem(UNREADABLE, str(error), split)]
        for name, records in splits_of_file.items():
            splits[name] += records
        problems += problems_of_file
    return splits, problems
