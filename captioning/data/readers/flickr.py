"""Flickr8k as distributed, and Flickr30k Entities with marked phrases and boxes in XML.

Plummer et al. 2015, "Flickr30k Entities: Collecting Region-to-Phrase Correspondences for Richer
Image-to-Sentence Models".
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from captioning.data.readers.reader import Contents, Problem, Reader, Row, parsed
from captioning.data.readers.rows import names_photo, rows_of
from captioning.data.records import ImageObject, Phrase, Record
from captioning.data.splits import SPLITS
from captioning.data.tokens import tokenize
from captioning.errors import InputError, reading, shown
from captioning.files import text_of

TOKENS = ("Flickr8k.token.txt", "Flickr8k_text/Flickr8k.token.txt")
PARTS = {"train": "train", "val": "dev", "test": "test"}  # of Flickr_8k.devImages.txt

SENTENCES, ANNOTATIONS = "Sentences", "Annotations"

PHRASE = re.compile(r"\[/EN#(\d+)((?:/[^\s/\[\]]+)+) ([^\[\]]+)\]")  # [/EN#3/people A man]


class Flickr8k(Reader):
    """Flickr8k as distributed: its text files and a folder of the photos.

    The id of an image is its file name without the suffix. Without the lists of the splits, a hash
    of the id decides between train and val.

    Args:
        root: the folder that holds ``Flickr8k.token.txt``, or ``Flickr8k_text`` with that file; or
            a file of such lines.
        images: folder of the photos; by default ``Images`` or ``Flicker8k_Dataset`` in `root`.
        val_fraction: share of the photos for validation if there are no lists of the splits.
    """

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return root.match("Flickr8k*.token.txt") or any((root / file).is_file() for file in TOKENS)

    def _read(self, problems: list[Problem]) -> dict[str, list[Record]]:
        files = [self.root / file for file in TOKENS]
        file = next(filter(Path.is_file, [self.root, *files]), files[0])
        captions: dict[str, list[str]] = defaultdict(list)
        for row in rows_of(file, problems):
            captions[row.name].extend(row.captions)
        lists: dict[str | None, list[str]] = {}
        if self.root.is_dir():
            paths = {s: file.with_name(f"Flickr_8k.{p}Images.txt") for s, p in PARTS.items()}
            lists = {split: _names(path) for split, path in paths.items() if path.is_file()}
        # The original file has captions of 2258277193_586949ec62.jpg.1, which is no photo.
        lists = lists or {None: list(filter(names_photo, captions))}
        rows = [
            Row(name, captions.get(name, ()), split, Path(name).stem)
            for split, names in lists.items()
            for name in names
        ]
        return self._records(rows, file)


class Flickr30kEntities(Reader):
    """Flickr30k Entities as distributed, with a folder of the photos.

    An object's name is its number in the sentences of the image, and a record's `phrases` give the
    places of these numbers. So only references name objects here; captions of a model do not.

    Args:
        root: the folder that holds ``Sentences``, ``Annotations``, and ``train.txt``, ``val.txt``
            or ``test.txt``, the lists of images.
        images: folder of the photos; by default ``flickr30k-images`` or ``images`` in `root`.
        objects: whether to read boxes.
    """

    def __init__(
        self, root: str | Path, images: str | Path | None = None, objects: bool = True
    ) -> None:
        super().__init__(root, images)
        self.objects = objects

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return (root / SENTENCES).is_dir() and (root / ANNOTATIONS).is_dir()

    @property
    def splits(self) -> tuple[str, ...]:
        found = tuple(split for split in SPLITS if (self.root / f"{split}.txt").is_file())
        if not found:
            raise InputError(
                f"{self.root}: no list of images; put train.txt, val.txt or test.txt there"
            )
        return found

    def _load(self, split: str) -> Contents:
        file = self.root / f"{split}.txt"
        names = _names(file)
        paths = self._photos([f"{name}.jpg" for name in names], file)
        images = ((f"{self.root}: {pair[0]}", pair) for pair in zip(names, paths, strict=True))
        problems: list[Problem] = []
        return Contents(list(parsed(images, self._record, problems)), problems)

    def _record(self, image: tuple[str, Path]) -> Record:
        name, path = image
        sentences = text_of(self.root / SENTENCES / f"{name}.txt").splitlines()
        read = [_sentence(sentence) for sentence in filter(str.strip, sentences)]
        objects = _boxes(self.root / ANNOTATIONS / f"{name}.xml") if self.objects else ()
        captions, phrases = (tuple(part) for part in zip(*read, strict=True)) if read else ((), ())
        return Record(path, name, captions, tuple(objects), phrases)


def _names(file: Path) -> list[str]:
    return list(dict.fromkeys(filter(None, map(str.strip, text_of(file).splitlines()))))


def _sentence(line: str) -> tuple[str, tuple[Phrase, ...]]:
    """A sentence without its marks, and its phrases."""
    caption, phrases, end, count = "", [], 0, 0
    for found in PHRASE.finditer(line):
        before = line[end : found.start()]
        start = count + len(tokenize(before))
        count = start + len(tokenize(found[3]))
        phrases.append(Phrase(found[1], start, count))
        caption += before + found[3]
        end = found.end()
    caption += line[end:]
    count += len(tokenize(line[end:]))
    if "[/EN#" in caption:
        raise ValueError(f"{shown(line)} is no sentence with phrases such as [/EN#3/people A man]")
    # Numbers of words before and after a phrase are right unless a token goes across its end.
    is_right = count == len(tokenize(caption))
    return caption.strip(), tuple(p for p in phrases if p.start < p.stop) if is_right else ()


def _boxes(file: Path) -> Iterator[ImageObject]:
    with reading(file, ElementTree.ParseError):
        root = ElementTree.fromstring(text_of(file))
    for thing in root.iter("object"):
        box = thing.find("bndbox")
        if box is None:
            continue  # a scene, or something without a clear outline
        edges = [int(box.findtext(edge) or "") for edge in ("xmin", "ymin", "xmax", "ymax")]
        left, top, right, bottom = edges
        if right < left or bottom < top:
            raise ValueError(f"{file.name}: a box has the edges {edges}")
        for name in thing.findall("name"):
            # Pixels are counted from one, and the last one belongs to the box.
            size = right - left + 1.0, bottom - top + 1.0
            yield ImageObject((name.text or "").strip(), (left - 1.0, top - 1.0, *size))
