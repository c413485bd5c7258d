"""Flickr8k as distributed, and Flickr30k Entities with marked phrases and boxes in XML.

Plummer et al. 2015, "Flickr30k Entities: Collecting Region-to-Phrase Correspondences for Richer
Image-to-Sentence Models".
"""

import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from captioning.data.readers.data_set import DataSet
from captioning.data.readers.fields import Entry, parse_entries
from captioning.data.readers.reader import Reader, Row, SplitsAndProblems, read_files
from captioning.data.readers.rows import is_photo_name, read_table
from captioning.data.records import ImageObject, Phrase, Record
from captioning.data.splits import SPLITS, split_name
from captioning.data.tokens import tokenize
from captioning.errors import InputError, format_value, reading
from captioning.files import read_text

TOKENS = ("Flickr8k.token.txt", "Flickr8k_text/Flickr8k.token.txt")
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}

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

    def read(self) -> DataSet:
        files = [self.root, *(self.root / name for name in TOKENS)]
        file = next(filter(Path.is_file, files), files[1])
        table = read_table(file)
        captions: dict[str, list[str]] = defaultdict(list)
        for row in table.rows:
            captions[row.name].extend(row.captions)
        names_by_split: dict[str, list[str]] = {}
        if self.root.is_dir():
            for split, name in LISTS.items():
                if file.with_name(name).is_file():
                    names_by_split[split] = _read_list(file.with_name(name))
        if not names_by_split:
            # The original file has captions of 2258277193_586949ec62.jpg.1, which is no photo.
            names_by_split[""] = list(filter(is_photo_name, captions))
        rows = [
            Row(name, captions.get(name, ()), split, Path(name).stem)
            for split, names in names_by_split.items()
            for name in names
        ]
        return self.make_data_set(self.make_records(rows, file), table.problems)


class Flickr30kEntities(Reader):
    """Flickr30k Entities as distributed, with a folder of the photos.

    An object's name is its number in the sentences of the image, and a record's `phrases` give the
    places of these numbers. So only references name objects here; captions of a model do not.

    Args:
        root: the folder that holds ``Sentences``, ``Annotations``, and ``train.txt``, ``val.txt``
            or ``test.txt``, the lists of images.
        images: folder of the photos; by default ``flickr30k-images`` or ``images`` in `root`.
        objects: whether to read boxes; the name of a split reads those of this split.
    """

    def __init__(
        self, root: str | Path, images: str | Path | None = None, objects: bool | str = True
    ) -> None:
        super().__init__(root, images)
        self.objects = objects

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return (root / SENTENCES).is_dir() and (root / ANNOTATIONS).is_dir()

    def read(self) -> DataSet:
        files = {split: self.root / f"{split}.txt" for split in SPLITS}
        files = {split: file for split, file in files.items() if file.is_file()}
        if not files:
            raise InputError(
                f"{self.root}: no list of images; put train.txt, val.txt or test.txt there"
            )
        splits, problems = read_files(files.items(), self._read_file)
        return DataSet(splits, problems, self.root)

    def _read_file(self, file: Path, split: str) -> SplitsAndProblems:
        names = _read_list(file)
        photos = self.photo_paths([f"{name}.jpg" for name in names], file)
        images = zip(names, photos, strict=True)
        entries = [Entry(f"{self.root}:", name, (name, photo)) for name, photo in images]
        parse_image = partial(self._parse_image, needs_objects=self._needs_objects(split))
        records, problems = parse_entries(entries, parse_image, split)
        return {split: records}, problems

    def _needs_objects(self, split: str) -> bool:
        return self.objects if isinstance(self.objects, bool) else split_name(self.objects) == split

    def _parse_image(self, image: tuple[str, Path], needs_objects: bool) -> Record:
        name, photo = image
        sentences = read_text(self.root / SENTENCES / f"{name}.txt").splitlines()
        captions: list[str] = []
        phrases: list[tuple[Phrase, ...]] = []
        for sentence in filter(str.strip, sentences):
            caption, phrases_of_caption = _parse_sentence(sentence)
            captions.append(caption)
            phrases.append(phrases_of_caption)
        objects: list[ImageObject] = []
        if needs_objects:
            objects = _read_boxes(self.root / ANNOTATIONS / f"{name}.xml")
        return Record(photo, name, tuple(captions), tuple(objects), tuple(phrases))


def _read_list(file: Path) -> list[str]:
    """The lines of a file, without repeats and empty ones."""
    return list(dict.fromkeys(filter(None, map(str.strip, read_text(file).splitlines()))))


def _parse_sentence(line: str) -> tuple[str, tuple[Phrase, ...]]:
    """A sentence without its marks, and its phrases."""
    caption = ""
    phrases: list[Phrase] = []
    end = word_count = 0
    for match in PHRASE.finditer(line):
        text_before = line[end : match.start()]
        start = word_count + len(tokenize(text_before))
        word_count = start + len(tokenize(match[3]))
        phrases.append(Phrase(match[1], start, word_count))
        caption += text_before + match[3]
        end = match.end()
    caption += line[end:]
    word_count += len(tokenize(line[end:]))
    if "[/EN#" in caption:
        raise ValueError(
            f"{format_value(line)} is no sentence with phrases such as [/EN#3/people A man]"
        )
    # The numbers of words are wrong if a token goes across the end of a phrase.
    if word_count != len(tokenize(caption)):
        phrases = []
    return caption.strip(), tuple(phrase for phrase in phrases if phrase.start < phrase.stop)


def _read_boxes(file: Path) -> list[ImageObject]:
    with reading(file, ElementTree.ParseError):
        root = ElementTree.fromstring(read_text(file))
    objects: list[ImageObject] = []
    for annotation in root.iter("object"):
        box = annotation.find("bndbox")
        if box is None:
            continue  # a scene, or something without a clear outline
        edges = [int(box.findtext(edge) or "") for edge in ("xmin", "ymin", "xmax", "ymax")]
        left, top, right, bottom = edges
        if right < left or bottom < top:
            raise ValueError(f"{file.name}: a box has the edges {edges}")
        # Pixels are counted from one, and the last one belongs to the box.
        pixels = (left - 1.0, top - 1.0, right - left + 1.0, bottom - top + 1.0)
        for name in annotation.findall("name"):
            objects.append(ImageObject((name.text or "").strip(), pixels))
    return objects
