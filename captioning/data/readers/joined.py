"""Several data sets as one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from math import prod
from pathlib import Path
from statistics import fmean

from captioning.data.readers.data_set import DataSet, Problem
from captioning.data.readers.reader import Reader
from captioning.data.records import Record
from captioning.data.splits import split_name
from captioning.errors import InputError


class Joined(Reader):
    """The images of several data sets, one data set after the other.

    A split has the images of all data sets that have this split. An image's id is its own id behind
    the name of its data set's folder, such as ``flickr8k/1000268201_693b08cb0e``. Several folders
    count as one data set if they are joined themselves: ``coco-small+coco-more/coco-small/285``.

    Args:
        readers: different data sets.
        balanced: use at most as many images of a data set's split as those before it have, evenly
            spaced.
        rehearsal: whether images of all data sets but the first are for rehearsal: an objective may
            leave out their captions (`captioning.training.WithoutForgetting`).
    """

    def __init__(
        self, readers: Sequence[Reader], balanced: bool = False, rehearsal: bool = False
    ) -> None:
        roots = [reader.root for reader in readers]
        super().__init__(" + ".join(map(str, roots)))
        names = [_short_name(reader) for reader in readers]
        if len(set(names)) < len(names):
            names = [root.as_posix() for root in roots]
        if len(set(names)) < len(names) or not names:
            raise InputError(f"Joined: give different data sets, not {self.root}")
        self.readers = dict(zip(names, readers, strict=True))
        self.balanced = balanced
        self.rehearsal = rehearsal

    @property
    def folders(self) -> list[Path]:
        return [folder for reader in self.readers.values() for folder in reader.folders]

    def read(self) -> DataSet:
        parts: dict[str, DataSet] = {}
        splits: dict[str, list[Record]] = {}
        problems: list[Problem] = []
        for name, reader in self.readers.items():
            limits = {split: len(records) for split, records in splits.items()}
            is_limited = self.balanced and bool(parts)  # the first data set has all it has
            part = self._part(name, reader.read(), limits if is_limited else None)
            for split, records in part.splits.items():
                splits.setdefault(split, []).extend(records)
            problems += part.problems
            parts[name] = part
        return DataSet(splits, problems, self.root, parts)

    def _part(self, name: str, data_set: DataSet, limits: Mapping[str, int] | None) -> DataSet:
        """Prefix the ids, and take evenly spaced records of each split up to its limit.

        If there are limits, splits without one are left out.
        """
        splits: dict[str, list[Record]] = {}
        for split in map(split_name, data_set.splits):
            spelling = data_set.find_split(split)
            records = [] if spelling is None else data_set.splits[spelling]
            if limits is not None and split not in limits:
                continue
            limit = len(records) if limits is None else min(len(records), limits[split])
            records = [records[n * len(records) // limit] for n in range(limit)]
            splits[split] = [
                replace(
                    record,
                    image_id=f"{name}/{record.image_id}",
                    is_rehearsal=self.rehearsal and name != next(iter(self.readers)),
                )
                for record in records
            ]
        problems = []
        for problem in data_set.problems:
            split_of_problem = None if problem.split is None else split_name(problem.split)
            if limits is not None and split_of_problem not in (None, *limits):
                continue
            problems.append(replace(problem, split=split_of_problem))
        return DataSet(splits, problems, data_set.root)

    def mean_score(self, scores: Mapping[int | str, float]) -> float:
        """The geometric mean of the data sets' mean scores, from scores by image id.

        It ranks models alike whatever scale the scores of a data set have.
        """
        scores_by_set: defaultdict[str, list[float]] = defaultdict(list)
        for image_id, score in scores.items():
            scores_by_set[self._name_of_set(image_id)].append(score)
        means = [fmean(scores_of_set) for scores_of_set in scores_by_set.values()]
        return prod(means) ** (1 / len(means))

    def equal_shares(self, records: Sequence[Record]) -> list[Record]:
        """Repeat the records of smaller data sets until each has as many as the largest one."""
        records_by_set: defaultdict[str, list[Record]] = defaultdict(list)
        for record in records:
            records_by_set[self._name_of_set(record.image_id)].append(record)
        share = max(map(len, records_by_set.values()))
        repeated_records: list[Record] = []
        for records_of_set in records_by_set.values():
            repeated_records += islice(cycle(records_of_set), share)
        return repeated_records

    def _name_of_set(self, image_id: int | str) -> str:
        """The name of an image's data set; one name may begin with another and a slash."""
        names = [name for name in self.readers if str(image_id).startswith(f"{name}/")]
        return max(names, key=len)


def _short_name(reader: Reader) -> str:
    """The name of a reader's folder, or of those that it joins."""
    if isinstance(reader, Joined):
        return "+".join(reader.readers)
    return reader.root.stem if reader.root.suffix else reader.root.name
