"""The words of captions that name objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from captioning.data.records import Record
from captioning.data.tokens import plurals, tokenize
from captioning.errors import InputError
from captioning.files import read_json

COCO = Path(__file__).with_name("coco_words.json")
NAMES = TypeAdapter(dict[str, list[str]])
FORMAT = '{"categories": {"dog": ["dog", "puppy"]}, "others": ["dog house"]}'


class Mention(NamedTuple):
    """Words of a caption that name objects of a category."""

    name: str  # the words
    category: str
    start: int  # in the words of the caption
    stop: int  # after the last one


@dataclass(frozen=True)
class ImageMentions:
    """How many mentions the captions of an image have."""

    count: int
    absent: tuple[Mention, ...] = ()  # of what is neither in the crop nor named by any reference
    unknown: int = 0  # with a word that the model does not know


class Lexicon:
    """The words that name each category, in singular and plural.

    Regular plurals of the last word need no entry: buses, puppies, shelves, firemen and potatoes,
    but not mice.

    Args:
        categories: the names of each category, of one word or several. A category's own name counts
            only if it is listed.
        others: names of other things that contain a category's name, such as "dog house".
    """

    def __init__(self, categories: Mapping[str, Iterable[str]], others: Iterable[str] = ()) -> None:
        listed: list[tuple[str | None, Iterable[str]]] = [*categories.items(), (None, others)]
        self.categories = frozenset(categories)
        # Listed names come after all plurals, so that no plural replaces a listed name.
        names = [(name, category) for category, named in listed for name in named]
        added = [(plural, category) for name, category in names for plural in plurals(name)]
        self._categories = {tuple(name.split()): category for name, category in added + names}
        self._longest = max(map(len, self._categories), default=0)

    @classmethod
    def coco(cls) -> "Lexicon":
        """Everyday words for COCO's 80 categories.

        Rohrbach et al. 2018 ("Object Hallucination in Image Captioning") had the idea; the words
        are this project's. "orange" is omitted, since captions use it for the colour.
        """
        return cls.load(COCO)

    @classmethod
    def load(cls, path: str | Path) -> "Lexicon":
        """The lexicon in a JSON file with the arguments of the class.

        Raises:
            InputError: the file is missing or malformed.
        """
        content = read_json(path)
        try:
            others = NAMES.validate_python({"others": content.get("others", [])})
            return cls(NAMES.validate_python(content["categories"]), others["others"])
        except (AttributeError, LookupError, ValidationError):
            raise InputError(f'{path}: expected {FORMAT}; "others" is optional') from None

    @classmethod
    def of(cls, categories: Iterable[str]) -> "Lexicon":
        """COCO's lexicon if all categories are COCO's, otherwise the categories' own names."""
        categories, coco = set(categories), cls.coco()
        if categories <= coco.categories:
            return coco
        return cls({category: (category.lower(),) for category in categories})

    def mentions(self, words: Sequence[str]) -> list[Mention]:
        """The mentions in a caption, whose words are in lower case, from left to right.

        Of overlapping names, the longest counts.
        """
        found, start = [], 0
        while start < len(words):
            for stop in range(min(start + self._longest, len(words)), start, -1):
                name = tuple(words[start:stop])
                if name in self._categories:
                    category = self._categories[name]
                    if category is not None:
                        found.append(Mention(" ".join(name), category, start, stop))
                    start = stop
                    break
            else:
                start += 1
        return found


def categories(records: Iterable[Record]) -> set[str]:
    """The categories of the records' objects."""
    return {thing.name for record in records for thing in record.objects}


def named_by_people(record: Record, lexicon: Lexicon) -> list[tuple[int, Mention]]:
    """The mentions in the references, with the index of the caption.

    These are the data set's own phrases, if it has them, otherwise those of the lexicon. A phrase
    is represented by its last word, which in English is the noun: "a small dog".
    """
    found = []
    for number, caption in enumerate(record.captions):
        words = tokenize(caption)
        if record.phrases:
            found += [
                (number, Mention(words[stop - 1], name, stop - 1, stop))
                for name, _, stop in record.phrases[number]
            ]
        else:
            found += [(number, mention) for mention in lexicon.mentions(words)]
    return found
