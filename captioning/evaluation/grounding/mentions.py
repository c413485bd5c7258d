"""The objects that the captions of an image name, and where they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.lexicon import Lexicon, Mention, Named, named_by_people
from captioning.evaluation.grounding.looks import Look


@dataclass(frozen=True)
class ImageMentions:
    """The mentions in the captions of an image.

    Attributes:
        record: the image with its objects.
        view: the part of it that the model sees.
        tested: the mentions, with the index of the caption, of objects that the crop shows, by
            words that the model knows.
        named: counts of all mentions.
    """

    record: Record
    view: View
    tested: Sequence[tuple[int, Mention]]
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
        """The mentions in a generated caption, or in all references.

        Args:
            record: the image.
            view: the part of it that the model sees.
            generated: the words of the generated caption; None for the references.
            lexicon: maps words to categories.
            known: the words that the model knows.

        Raises:
            InputError: a mask cannot be decoded, or is of another photo.
        """
        by_people = named_by_people(record, lexicon)
        people_named = {mention.category for _, mention in by_people}
        mentions = by_people
        if generated is not None:
            mentions = [(0, mention) for mention in lexicon.mentions(generated)]
        wanted = {mention.category for _, mention in mentions} | people_named
        found = {category: _place(record, category, view, (1, 1)) for category in wanted}
        there = [(n, mention) for n, mention in mentions if found[mention.category] is not None]
        tested = [(n, mention) for n, mention in there if known.issuperset(mention.name.split())]
        named = Named(
            record.image_id,
            len(mentions),
            tuple(
                mention
                for _, mention in mentions
                if found[mention.category] is None and mention.category not in people_named
            ),
            len(there) - len(tested),
            frozenset(category for category in people_named if found[category] is not None),
        )
        return cls(record, view, tested, named)

    def look(
        self, caption: int, mention: Mention, maps: Float[np.ndarray, "T rows columns"]
    ) -> Look:
        """The look of a mention, from the maps of its caption's words."""
        grid = (maps.shape[1], maps.shape[2])
        key = (mention.category, grid)
        if key not in self._places:
            self._places[key] = _place(self.record, mention.category, self.view, grid)
        place = self._places[key]
        assert place is not None  # a tested object is inside the crop on any grid
        return Look(
            self.record.image_id,
            self.record.image,
            mention,
            maps[mention.start : mention.stop].mean(axis=0),
            place,
            self.view.crop,
            self.view.size,
            caption=caption,
        )


def _place(record: Record, category: str, view: View, grid: tuple[int, int]) -> Place | None:
    """The place of a category's objects in the model's crop; None if there are none."""
    objects = [thing for thing in record.objects if thing.name == category]
    try:
        return Place.of(objects, view.size, view.crop, grid) if objects else None
    except InputError as error:
        raise InputError(f"{record.image}: {category}: {error}") from None
