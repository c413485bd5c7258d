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
    """The number of mentions in the captions of an image.

    Attributes:
        count: of all mentions.
        hallucinated: mentions of what is neither in the crop nor named by any reference.
        unknown_count: of the mentions with a word that is not in the model's vocabulary.
    """

    count: int
    hallucinated: tuple[Mention, ...] = ()
    unknown_count: int = 0


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
        category_by_name: dict[str, str | None] = {}
        for category, names in listed:
            for name in names:
                category_by_name |= dict.fromkeys(plurals(name), category)
        # Listed names come after all plurals, so that no plural replaces a listed name.
        for category, names in listed:
            category_by_name |= dict.fromkeys(names, category)
        self._categories = {
            tuple(name.split()): category for name, category in category_by_name.items()
        }
        self._longest = max(map(len, self._categories), default=0)

    @classmethod
    def coco(cls) -> "Lexicon":
        """Return everyday words for COCO's 80 categories.

        The idea is from Rohrbach et al. 2018 ("Object Hallucination in Image Captioning"), the
        words are not. "orange" is omitted, since captions use it for the colour.
        """
        return cls.load(COCO)

    @classmethod
    def load(cls, path: str | Path) -> "Lexicon":
        """Read the arguments of the class from a JSON file.

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
        """Return COCO's lexicon if all categories are COCO's, otherwise the categories' names."""
        categories, coco = set(categories), cls.coco()
        if categories <= coco.categories:
            return coco
        return cls({category: (category.lower(),) for category in categories})

    def mentions(self, words: Sequence[str]) -> list[Mention]:
        """Find the mentions in the lower-case words of a caption, from left to right.

        Of names that start at the same word, the longest counts; mentions do not overlap.
        """
        mentions, start = [], 0
        while start < len(words):
            for stop in range(min(start + self._longest, len(words)), start, -1):
                name = tuple(words[start:stop])
                if name in self._categories:
                    category = self._categories[name]
                    if category is not None:
                        mentions.append(Mention(" ".join(name), category, start, stop))
                    start = stop
                    break
            else:
                start += 1
        return mentions


def categories(records: Iterable[Record]) -> set[str]:
    """Return the categories of the records' objects."""
    return {image_object.name for record in records for image_object in record.objects}


def named_by_people(record: Record, lexicon: Lexicon) -> list[tuple[int, Mention]]:
    """Find the mentions in the references, with the index of the caption.

    They are the phrases of the data set if it has any, otherwise those of the lexicon. The last
    word represents a phrase, which in English is the noun: "a small dog".
    """
    mentions = []
    for number, caption in enumerate(record.captions):
        words = tokenize(caption)
        if record.phrases:
            for name, _, stop in record.phrases[number]:
                mentions.append((number, Mention(words[stop - 1], name, stop - 1, stop)))
        else:
            mentions += [(number, mention) for mention in lexicon.mentions(words)]
    return mentions
