"""Finds the words of a caption that name categories of objects."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from captioning.data.tokens import plurals
from captioning.untrusted import field, read_json

COCO = Path(__file__).with_name("coco_words.json")
REMEDY = (
    'expected {"categories": {"dog": ["dog", "puppy"]}, "others": ["dog house"]}, of which '
    '"others" may be left out'
)


class Mention(NamedTuple):
    """Words of a caption that name objects of one category.

    Attributes:
        name: the words as written.
        category: the category that they name.
        start: index of the first word in the caption.
        stop: index after the last word.
    """

    name: str
    category: str
    start: int
    stop: int


class Lexicon:
    """The words that name each category, in singular and plural.

    Regular plurals of the last word need no entry: buses, puppies, shelves, firemen and potatoes,
    but not mice.

    Args:
        categories: for each category the names, of one word or several, that stand for it; the
            category's own name must be listed to count.
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
        """COCO's 80 categories by everyday words.

        The idea of mapping such words to categories is from Rohrbach et al. 2018 ("Object
        Hallucination in Image Captioning"); the words are this project's. Only "orange" is left
        out, since captions use it for the colour.
        """
        return cls.load(COCO)

    @classmethod
    def load(cls, path: str | Path) -> "Lexicon":
        """The lexicon in a JSON file of "categories" and "others", as the class takes them.

        Raises:
            InputError: the file is missing or malformed.
        """
        content = read_json(path)
        categories = _value(content, "categories", dict, path)
        for category in categories:
            for name in _value(categories, category, list, path):
                _value({"name": name}, "name", str, path)
        others = _value({"others": [], **content}, "others", list, path)
        for name in others:
            _value({"name": name}, "name", str, path)
        return cls(categories, others)

    @classmethod
    def of(cls, categories: Iterable[str]) -> "Lexicon":
        """COCO's lexicon if all categories are COCO's; else one of the categories' own names."""
        categories, coco = set(categories), cls.coco()
        if categories <= coco.categories:
            return coco
        return cls({category: (category.lower(),) for category in categories})

    def mentions(self, words: Sequence[str]) -> list[Mention]:
        """The mentions in a caption, from left to right; the longest of overlapping names counts.

        Args:
            words: in lower case, as `captioning.data.tokens.tokenize` gives them.
        """
        found, start = [], 0
        while start < len(words):
            stop = next(
                (
                    stop
                    for stop in range(min(start + self._longest, len(words)), start, -1)
                    if tuple(words[start:stop]) in self._categories
                ),
                None,
            )
            if stop is None:
                start += 1
                continue
            category = self._categories[tuple(words[start:stop])]
            if category is not None:
                found.append(Mention(" ".join(words[start:stop]), category, start, stop))
            start = stop
        return found


def _value(content: Any, key: str, kind: type, path: str | Path) -> Any:
    return field(content, key, kind, source=path, remedy=REMEDY)
