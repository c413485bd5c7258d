"""Flickr8k's own text files."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from captioning.data.readers.reader import Contents, Reader, folder_of
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.untrusted import text_of

TOKENS = "Flickr8k.token.txt"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


class Flickr8k(Reader):
    """Flickr8k as distributed: its text files and a folder of the photos.

    The id of an image is its file name without the suffix. Captions of images outside all
    splits are skipped without a report, since the original file has some.

    Args:
        root: the folder that holds ``Flickr8k.token.txt``.
        images: folder of the photos; by default ``Images`` or ``Flicker8k_Dataset`` in `root`.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether ``Flickr8k.token.txt`` is there."""
        return (root / TOKENS).is_file()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a list of images."""
        found = tuple(split for split, name in LISTS.items() if (self.root / name).is_file())
        if not found:
            expected = ", ".join(LISTS.values())
            raise InputError(f"{self.root}: no list of images; put some of {expected} there")
        return found

    def _load(self, split: str) -> Contents:
        file = self.root / LISTS[split]
        lines = map(str.strip, text_of(file).splitlines())
        names = list(dict.fromkeys(filter(None, lines)))  # one may be listed twice
        usual = (self.root / "Images", self.root / "Flicker8k_Dataset")
        folder = folder_of(names, usual if self.images is None else [self.images], source=file)
        records = [
            Record(folder / name, Path(name).stem, tuple(self._captions.get(name, ())))
            for name in names
        ]
        return Contents(records, [])

    @cached_property
    def _captions(self) -> dict[str, list[str]]:
        """The captions of each file name, in the order of the file."""
        captions = defaultdict(list)
        for name, caption in numbered_captions(self.root / TOKENS):
            captions[name.rpartition("#")[0]].append(caption)
        return dict(captions)


def numbered_captions(file: Path) -> Iterator[tuple[str, str]]:
    """Each caption of a file like ``Flickr8k.token.txt``, with its name, such as ``a.jpg#0``.

    Raises:
        InputError: the file cannot be read or is malformed.
    """
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if not line.strip():
            continue
        name, tab, caption = line.partition("\t")
        if not tab or "#" not in name:
            raise InputError(
                f"{file}: line {number} is {line[:40]!r}; "
                "expected a file name, #, a number, a tab and the caption"
            )
        yield name, caption.strip()
