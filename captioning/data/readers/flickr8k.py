"""Flickr8k's own text files."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers.dataset_files import find_images, photo_folders
from captioning.data.readers.reader import Contents, Problem, Reader, in_order, numbered, parsed
from captioning.data.records import Record
from captioning.errors import shown
from captioning.untrusted import opened, text_of

TOKENS = "Flickr8k.token.txt"
TEXT = "Flickr8k_text"
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


class Flickr8k(Reader):
    """Flickr8k as distributed: its text files and a folder of the photos.

    The id of an image is its file name without the suffix. Captions of images outside all
    splits are skipped without a report, since the original file has some. Without the lists of the
    splits, a hash of the id decides between train and val.

    Args:
        root: the folder that holds ``Flickr8k.token.txt``, or ``Flickr8k_text`` with that file.
        images: folder of the photos; by default ``Images`` or ``Flicker8k_Dataset`` in `root`.
        val_fraction: share of the photos for validation if there are no lists of the splits.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether ``Flickr8k.token.txt`` is there."""
        return (root / TOKENS).is_file() or (root / TEXT / TOKENS).is_file()

    @property
    def text(self) -> Path:
        """The folder of the text files."""
        return self.root if (self.root / TOKENS).exists() else self.root / TEXT

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a list of images; else train and val."""
        found = tuple(split for split, name in LISTS.items() if (self.text / name).is_file())
        return found or in_order(self._by_hash)

    def _load(self, split: str) -> Contents:
        file = self.text / LISTS[split]
        problems = self._captions[1] if split == self.splits[0] else []
        if not file.is_file():
            return Contents(self._by_hash[split], problems)
        lines = map(str.strip, text_of(file).splitlines())
        return Contents(self._records(dict.fromkeys(filter(None, lines)), file), problems)

    def _records(self, names: Iterable[str], file: Path) -> list[Record]:
        names, folders = list(names), [self.images] if self.images else photo_folders(self.root)
        paths = find_images(names, folders, source=file, as_written=self.captions_only)
        captions, _ = self._captions
        return [
            Record(path, Path(name).stem, tuple(captions.get(name, ())))
            for name, path in zip(names, paths, strict=True)
        ]

    @cached_property
    def _by_hash(self) -> dict[str, list[Record]]:
        # The original file has captions of 2258277193_586949ec62.jpg.1, which is no photo.
        names = [n for n in self._captions[0] if Path(n).suffix.lower() in IMAGE_SUFFIXES]
        return self._divided(self._records(names, self.text / TOKENS))

    @cached_property
    def _captions(self) -> tuple[dict[str, list[str]], list[Problem]]:
        """The captions of each file name, in the order of the file, and malformed lines."""
        captions, problems = defaultdict(list), list[Problem]()
        for name, caption in numbered_captions(self.text / TOKENS, problems):
            captions[name].append(caption)
        return captions, problems


def is_numbered(file: Path) -> bool:
    """Whether a file begins like ``Flickr8k.token.txt``, with ``a.jpg#0``, a tab and a caption."""
    if file.suffix.lower() not in (".txt", ".token") or not file.is_file():
        return False
    with opened(file) as content:
        start = content.read(4096).decode(errors="replace").lstrip("\ufeff")
    return re.match(r"\s*[^\t\n]+#\d+\t", start) is not None


def numbered_captions(file: Path, problems: list[Problem]) -> list[tuple[str, str]]:
    """The photo's name and the caption of each line of a file like ``Flickr8k.token.txt``.

    Raises:
        InputError: the file cannot be read.
    """

    def parse(line: str) -> tuple[str, str]:
        name, tab, caption = line.partition("\t")
        if not tab or "#" not in name:
            raise ValueError(f"{shown(line)}: not a file name, #, a number, a tab and the caption")
        return name.rpartition("#")[0], caption.strip()

    lines = numbered(f"{file}: line", text_of(file).split("\n"))
    rows = ((place, line) for place, line in lines if line.strip())
    return [pair for _, pair in parsed(rows, parse, problems)]
