"""What a reader returns: the records of each split, and what it left out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from captioning.data.records import Record
from captioning.data.splits import in_order, split_name
from captioning.errors import InputError
from captioning.progress_bar import is_first_process, say

MALFORMED = "malformed rows"
UNREADABLE = "cannot be read"
WORDLESS = "captions without words"
UNCAPTIONED = "images without captions"
UNLISTED = "captions of images that are not listed"
BY_MODEL = "descriptions that a model wrote"
SHADOWED = "text files beside another of the same photo"


@dataclass(frozen=True)
class Problem:
    """A fault of a data set.

    Attributes:
        kind: its heading in a report, in the plural: "captions without words".
        name: of the faulty image, caption, row or file.
        split: that of the image, caption, row or file; None if it is not known.
    """

    kind: str
    name: str
    split: str | None = None


class DataSet:
    """The records of each split of a data set, and the problems of what was left out.

    Captions without a letter or a digit, and records without other captions, are left out and added
    to the problems.

    Args:
        splits: the records by split.
        problems: the rows, files and objects that were left out.
        root: where the data set is, for messages.
        parts: the data sets that were joined, by name; their records have the same ids.

    Attributes:
        splits: the records by split: train, val and test in this order, then any others by name. A
            split may be empty.
        problems: everything that was left out.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Record]],
        problems: Sequence[Problem] = (),
        root: str | Path = "",
        parts: "Mapping[str, DataSet] | None" = None,
    ) -> None:
        self.splits: dict[str, list[Record]] = {split: [] for split in in_order(splits)}
        self.problems = list(problems)
        self.root = root
        self.parts = dict(parts or {})
        for split, records in self.splits.items():
            for record in splits[split]:
                with_words = _without_wordless_captions(record)
                wordless = Problem(WORDLESS, str(record.image), split)
                self.problems += [wordless] * (len(record.captions) - len(with_words.captions))
                if with_words.captions:
                    records.append(with_words)
                else:
                    self.problems.append(Problem(UNCAPTIONED, str(record.image), split))

    def find_split(self, name: str) -> str | None:
        """The split of this name, or of another spelling such as validation for val."""
        if name in self.splits:
            return name
        usual_names = {split_name(split): split for split in self.splits}
        return usual_names.get(split_name(name))

    def records(self, split: str) -> list[Record]:
        """The records of a split.

        Raises:
            InputError: the split is unknown, has no captions, or one of its files cannot be read.
        """
        name = self.find_split(split)
        if name is None:
            raise InputError(
                f"{self.root} has no split {split!r}; it has {', '.join(self.splits)}; name one of "
                "these (--split; train_split or val_split of a configuration's data)"
            )
        if unreadable := self._problems_of(name, UNREADABLE):
            raise InputError(unreadable[0].name)
        if not self.splits[name]:
            malformed = self._problems_of(name, MALFORMED)
            advice = malformed[0].name if malformed else "add some, or use another split"
            raise InputError(f"{self.root}: split {split!r} has no captions; {advice}")
        return self.splits[name]

    def say_problems(self, *splits: str) -> None:
        """Print a line for each kind of problem of these splits, and of rows of no known split."""
        names_by_kind: dict[str, list[str]] = defaultdict(list)
        names = {self.find_split(split) for split in splits} | {None}
        for problem in self.problems:
            if problem.split in names:
                names_by_kind[problem.kind].append(problem.name)
        for kind, names_of_kind in names_by_kind.items():
            if is_first_process():
                count = len(names_of_kind)
                others = f", and {count - 1:,} more" if count > 1 else ""
                say(f"captioning: left out: {kind}: {names_of_kind[0]}{others}")

    def _problems_of(self, split: str, kind: str) -> list[Problem]:
        return [
            problem
            for problem in self.problems
            if problem.kind == kind and problem.split in (split, None)
        ]


def _without_wordless_captions(record: Record) -> Record:
    # Emoji and dots alone are no words to any tokenizer.
    numbers = [n for n, caption in enumerate(record.captions) if any(map(str.isalnum, caption))]
    if len(numbers) == len(record.captions):
        return record
    captions = tuple(record.captions[number] for number in numbers)
    phrases = tuple(record.phrases[number] for number in numbers if record.phrases)
    return replace(record, captions=captions, phrases=phrases)
