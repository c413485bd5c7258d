"""Flickr8k's own text files."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from captioning.data.images import IMAGE_SUFFIXES
from captioning.data.readers.dataset_files import find_images, photo_folders
from captioning.data.readers.reader import Contents, Reader, in_order
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.untrusted import opened, text_of

TOKENS = "Flickr8k.token.txt"
TEXT = "Flickr8k_text"
LONGEST_NAME = 4096  # bytes of a photo's name
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
        if not file.is_file():
            return Contents(self._by_hash[split], [])
        lines = map(str.strip, text_of(file).splitlines())
        return Contents(self._records(dict.fromkeys(filter(None, lines)), file), [])

    def _records(self, names: Iterable[str], file: Path) -> list[Record]:
        names, folders = list(names), [self.images] if self.images else photo_folders(self.root)
        paths = find_images(names, folders, source=file, as_written=self.captions_only)
        return [
            Record(path, Path(name).stem, tuple(self._captions.get(name, ())))
            for name, path in zip(names, paths, strict=True)
        ]

    @cached_property
    def _by_hash(self) -> dict[str, list[Record]]:
        # The original file has captions of 2258277193_586949ec62.jpg.1, which is no photo.
        names = [n for n in self._captions if Path(n).suffix.lower() in IMAGE_SUFFIXES]
        return self._divided(self._records(names, self.text / TOKENS))

    @cached_property
    def _captions(self) -> dict[str, list[str]]:
        """The captions of each file name, in the order of the file."""
        captions = defaultdict(list)
        for name, caption in numbered_captions(self.text / TOKENS):
            captions[name.rpartition("#")[0]].append(caption)
        return dict(captions)


def is_numbered(file: Path) -> bool:
    """Whether a file begins like ``Flickr8k.token.txt``, with ``a.jpg#0``, a tab and a caption."""
    if file.suffix.lower() not in (".txt", ".token") or not file.is_file():
        return False
    with opened(file) as content:
        start = content.read(LONGEST_NAME).decode(errors="replace").lstrip("\ufeff")
    return re.match(r"\s*[^\t\n]+#\d+\t", start) is not None


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
