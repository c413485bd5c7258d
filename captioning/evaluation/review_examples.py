"""True and wrong captions of photos, on which reviews are calibrated and measured.

A wrong caption is another photo's of the same length, or one whose noun is replaced by another of
its kind, such as dog by cat.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from captioning.data.records import Record
from captioning.data.tokenizers import tokenizer
from captioning.data.tokens import plurals
from captioning.data.vocabulary import Vocabulary
from captioning.evaluation.grounding.lexicon import COCO, Lexicon, Mention
from captioning.files import read_json

NOUN_KINDS = COCO.with_name("coco_kinds.json")

VOWELS = frozenset("aeiou")


@dataclass(frozen=True)
class WrongNoun:
    """A caption of which one noun is replaced.

    Attributes:
        caption: its words.
        place: of the wrong noun.
        true_place: of the last word of the true noun, in the true caption.
    """

    caption: tuple[str, ...]
    place: int
    true_place: int


@dataclass(frozen=True)
class Example:
    """A caption of a photo, and wrong ones.

    Attributes:
        record: the photo with all its captions.
        caption: its words.
        other_caption: those of a caption of another photo, as many.
        wrong_noun: the caption with a wrong noun; None if it names nothing that could be replaced.
    """

    record: Record
    caption: tuple[str, ...]
    other_caption: tuple[str, ...]
    wrong_noun: WrongNoun | None

    @property
    def captions(self) -> list[tuple[str, ...]]:
        """The true caption, and the wrong ones."""
        wrong_captions = [] if self.wrong_noun is None else [self.wrong_noun.caption]
        return [self.caption, self.other_caption, *wrong_captions]

    @property
    def nouns(self) -> list[tuple[int, int]]:
        """The number in `captions`, and the place, of the true noun and of the wrong one."""
        if self.wrong_noun is None:
            return []
        return [(0, self.wrong_noun.true_place), (2, self.wrong_noun.place)]


class NounSwaps:
    """Replaces nouns of captions by others of their kind, which no caption of the photo has.

    Args:
        vocabulary: words that may replace others.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        content: dict[str, Any] = read_json(NOUN_KINDS)
        names: dict[str, list[str]] = read_json(COCO)["categories"]
        self.lexicon = Lexicon.coco()
        self.vocabulary = frozenset(vocabulary)
        self.listed_names = {name for category_names in names.values() for name in category_names}
        self.names = {
            category: next((name for name in category_names if name in self.vocabulary), None)
            for category, category_names in names.items()
        }
        self.kind_of: dict[str, list[str]] = {}
        for kind in content["kinds"]:
            self.kind_of |= dict.fromkeys(kind, kind)
        self.persons: defaultdict[str, list[str]] = defaultdict(list)
        for one, other in content["persons"]:
            self.persons[one].append(other)
            self.persons[other].append(one)

    def wrong_noun(
        self, words: Sequence[str], references: Sequence[Sequence[str]], draw: random.Random
    ) -> WrongNoun | None:
        """Replace a noun of a caption, drawn at random.

        Args:
            words: the caption.
            references: all captions of its photo.
            draw: draws the noun and its substitute.
        """
        named = {word for reference in references for word in reference}
        categories = {
            mention.category
            for reference in references
            for mention in self.lexicon.mentions(reference)
        }
        wrong_nouns = []
        for mention in self.lexicon.mentions(words):
            substitutes = self._substitutes(mention, categories, named)
            if substitutes:
                wrong_nouns.append((mention, draw.choice(substitutes)))
        if not wrong_nouns:
            return None
        mention, substitute = draw.choice(wrong_nouns)
        wrong_words = [*words[: mention.start], substitute, *words[mention.stop :]]
        if mention.start and wrong_words[mention.start - 1] in ("a", "an"):
            wrong_words[mention.start - 1] = "an" if substitute[0] in VOWELS else "a"
        return WrongNoun(tuple(wrong_words), mention.start, mention.stop - 1)

    def _substitutes(self, mention: Mention, categories: set[str], named: set[str]) -> list[str]:
        """Return words of the vocabulary that name another thing of the kind of a mention."""
        if mention.category == "person":
            return [
                word
                for word in self.persons[mention.name]
                if word not in named and word in self.vocabulary
            ]
        is_plural = mention.name not in self.listed_names
        substitutes = []
        for category in self.kind_of.get(mention.category, []):
            name = self.names[category]
            if name is None or category in categories:
                continue
            forms = plurals(name) if is_plural else [name]
            substitutes += [form for form in forms if form in self.vocabulary][:1]
        return substitutes


def review_examples(
    records: Sequence[Record], vocabulary: Vocabulary, seed: int = 0
) -> list[Example]:
    """Return an example of each photo that has a caption as long as one of another photo.

    Args:
        records: the photos.
        vocabulary: its words may replace nouns.
        seed: of what is drawn.
    """
    draw, swaps = random.Random(seed), NounSwaps(vocabulary.words)
    split = tokenizer(vocabulary.tokenizer)
    references = [[split(caption) for caption in record.captions] for record in records]
    captions_by_length: defaultdict[int, list[tuple[int, list[str]]]] = defaultdict(list)
    for number, photo_captions in enumerate(references):
        for caption in photo_captions:
            captions_by_length[len(caption)].append((number, caption))
    examples = []
    for number, record in enumerate(records):
        caption = draw.choice(references[number])
        other_captions = [
            other_caption
            for other_number, other_caption in captions_by_length[len(caption)]
            if other_number != number
        ]
        if other_captions:
            wrong_noun = swaps.wrong_noun(caption, references[number], draw)
            other_caption = tuple(draw.choice(other_captions))
            examples.append(Example(record, tuple(caption), other_caption, wrong_noun))
    return examples
