"""Flickr30k Entities' own files: sentences with marked phrases, and boxes in XML.

Plummer et al. 2015, "Flickr30k Entities: Collecting Region-to-Phrase Correspondences for Richer
Image-to-Sentence Models".
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from captioning.data.readers.dataset_files import find_images, photo_folders
from captioning.data.readers.reader import SPLITS, Contents, Problem, Reader, parsed
from captioning.data.records import ImageObject, Phrase, Record
from captioning.data.tokens import tokenize
from captioning.errors import InputError, reading, shown
from captioning.untrusted import text_of

SENTENCES, ANNOTATIONS = "Sentences", "Annotations"

PHRASE = re.compile(r"\[/EN#(\d+)((?:/[^\s/\]]+)+) ([^\[\]]+)\]")  # [/EN#3/people A man]


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
        """Whether ``Sentences`` and ``Annotations`` are there."""
        return (root / SENTENCES).is_dir() and (root / ANNOTATIONS).is_dir()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a list of images."""
        found = tuple(split for split in SPLITS if (self.root / f"{split}.txt").is_file())
        if not found:
            raise InputError(
                f"{self.root}: no list of images; put train.txt, val.txt or test.txt there"
            )
        return found

    def _load(self, split: str) -> Contents:
        file = self.root / f"{split}.txt"
        lines = map(str.strip, text_of(file).splitlines())
        names = list(dict.fromkeys(filter(None, lines)))
        photos = [f"{name}.jpg" for name in names]
        folders = [self.images] if self.images else photo_folders(self.root)
        paths = find_images(photos, folders, source=file, as_written=self.captions_only)
        images = ((f"{self.root}: {pair[0]}", pair) for pair in zip(names, paths, strict=True))
        problems: list[Problem] = []
        return Contents([record for _, record in parsed(images, self._record, problems)], problems)

    def _record(self, image: tuple[str, Path]) -> Record:
        name, path = image
        sentences = text_of(self.root / SENTENCES / f"{name}.txt").splitlines()
        read = [_sentence(sentence) for sentence in filter(str.strip, sentences)]
        objects = _boxes(self.root / ANNOTATIONS / f"{name}.xml") if self.objects else ()
        captions, phrases = (tuple(part) for part in zip(*read, strict=True)) if read else ((), ())
        return Record(path, name, captions, tuple(objects), phrases)


def _sentence(line: str) -> tuple[str, tuple[Phrase, ...]]:
    """A sentence without its marks, and its phrases."""
    caption, phrases, end = "", [], 0
    for found in PHRASE.finditer(line):
        caption += line[end : found.start()]
        start = len(tokenize(caption))
        caption += found[3]
        phrases.append(Phrase(found[1], start, len(tokenize(caption))))
        end = found.end()
    caption += line[end:]
    if "[/EN#" in caption:
        raise ValueError(f"{shown(line)} is no sentence with phrases such as [/EN#3/people A man]")
    words = tokenize(caption)
    # Numbers of words before and after a phrase are right unless a token goes across its end.
    return caption.strip(), tuple(
        phrase for phrase in phrases if phrase.start < phrase.stop <= len(words)
    )


def _boxes(file: Path) -> Iterator[ImageObject]:
    """The boxes of an image, one for each phrase that a box belongs to."""
    text = text_of(file)
    if "<!" in text.replace("<!--", ""):  # its entities could fill the memory
        raise ValueError(f"{file.name} has a document type")
    with reading(file, ElementTree.ParseError):
        root = ElementTree.fromstring(text)
    for thing in root.iter("object"):
        box = thing.find("bndbox")
        if box is None:
            continue  # a scene, or something without a clear outline
        left, top, right, bottom = edges = [
            int(box.findtext(edge) or "") for edge in ("xmin", "ymin", "xmax", "ymax")
        ]
        if right < left or bottom < top or max(edges) > 1_000_000:
            raise ValueError(f"{file.name}: a box has the edges {edges}")
        for name in thing.findall("name"):
            # Pixels are counted from one, and the last one belongs to the box.
            yield ImageObject(
                (name.text or "").strip(),
                (left - 1.0, top - 1.0, right - left + 1.0, bottom - top + 1.0),
            )
