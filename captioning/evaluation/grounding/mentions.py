"""What the captions of an image name, and where it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.errors import InputError
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.f1 import Naming
from captioning.evaluation.grounding.grounding_report import Named
from captioning.evaluation.grounding.lexicon import Lexicon, Mention
from captioning.evaluation.grounding.looks import Look


class Tested(NamedTuple):
    """A mention of an object that the model's crop shows.

    Attributes:
        caption: which of the image's captions.
        mention: the words.
    """

    caption: int
    mention: Mention


@dataclass(frozen=True)
class ImageMentions:
    """The mentions of an image's captions.

    Attributes:
        record: the image, with its objects.
        view: what the model sees of it.
        tested: the mentions of what is there, by words that the model knows.
        named: how many mentions there are, and of what is not there.
    """

    record: Record
    view: View
    tested: Sequence[Tested]
    named: Named
    _places: dict[tuple[str, tuple[int, int]], Place | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        record: Record,
        view: View,
        generated: Sequence[str] | None,
        lexicon: Lexicon,
        known: frozenset[str],
    ) -> "ImageMentions":
        """What a generated caption names, or what all references do.

        Args:
            record: the image.
            view: what the model sees of it.
            generated: the caption's words; none for the references.
            lexicon: maps words to categories.
            known: the words that the model knows.

        Raises:
            InputError: a mask cannot be decoded, or is of another photo.
        """
        by_people = named_by_people(record, lexicon)
        people_named = {mention.category for _, mention in by_people}
        mentions = by_people
        if generated is not None:
            mentions = [Tested(0, mention) for mention in lexicon.mentions(generated)]
        wanted = {mention.category for _, mention in mentions} | people_named
        found = {category: _place(record, category, view, (1, 1)) for category in wanted}
        there = [each for each in mentions if found[each.mention.category] is not None]
        tested = [each for each in there if known.issuperset(each.mention.name.split())]
        absent = [
            mention
            for _, mention in mentions
            if found[mention.category] is None and mention.category not in people_named
        ]
        naming = Naming(
            record.image_id,
            tuple(mention.category for mention in absent),
            frozenset(category for category in people_named if found[category] is not None),
        )
        named = Named(
            len(mentions),
            tuple(mention.name for mention in absent),
            len(there) - len(tested),
            naming,
        )
        return cls(record, view, tested, named)

    def look(
        self, caption: int, mention: Mention, maps: Float[np.ndarray, "T rows columns"]
    ) -> Look:
        """The look of a mention, by the maps of its caption's words."""
        grid = (maps.shape[1], maps.shape[2])
        key = (mention.category, grid)
        if key not in self._places:
            self._places[key] = _place(self.record, mention.category, self.view, grid)
        place = self._places[key]
        assert place is not None  # as it is there, whatever the grid
        weights = maps[mention.start : mention.stop].mean(axis=0)
        crop, size = self.view.crop, self.view.size
        record = self.record
        return Look(
            record.image_id, record.image, mention, weights, place, crop, size, caption=caption
        )


def named_by_people(record: Record, lexicon: Lexicon) -> list[Tested]:
    """What the references name: the data set's own phrases, or what the lexicon finds.

    A phrase is tested by its last word, which in English is the noun: "a small dog".
    """
    found = []
    for number, caption in enumerate(record.captions):
        words = tokenize(caption)
        if record.phrases:
            found += [
                Tested(number, Mention(words[stop - 1], name, stop - 1, stop))
                for name, _, stop in record.phrases[number]
            ]
        else:
            found += [Tested(number, mention) for mention in lexicon.mentions(words)]
    return found


def _place(record: Record, category: str, view: View, grid: tuple[int, int]) -> Place | None:
    """The place of a category's objects in the model's crop; None if it shows none."""
    objects = [thing for thing in record.objects if thing.name == category]
    try:
        return Place.of(objects, view.size, view.crop, grid) if objects else None
    except InputError as error:
        raise InputError(f"{record.image}: {category}: {error}") from None
