"""Whether a model's maps of words point at the objects that the words name.

Shapes: B images, N captions per image, C = B N captions, L regions, T words.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.faithfulness import Phrase, curve_areas, occlusion_drops
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import (
    Lexicon,
    Mention,
    Named,
    categories,
    named_by_people,
)
from captioning.evaluation.grounding.looks import GAUSSIAN, MODEL, RANDOM, Areas, Look, gaussian
from captioning.inference.batches import read_ahead
from captioning.maps import Captioned, word_maps
from captioning.models import Model
from captioning.progress_bar import ProgressBar
from captioning.threads import cut

Captions = Mapping[int | str, str]
"""One caption per image, by image id."""


def ground(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Captions | None = None,
    lexicon: Lexicon | None = None,
    batch_size: int = 16,
    seed: int = 0,
    map_name: str | None = None,
) -> GroundingReport:
    """The report of one map, without deletion and insertion curves; see `ground_maps`."""
    map_name = map_name or captioner.default_map
    settings = (lexicon, batch_size, seed, [map_name], False)
    return ground_maps(captioner, records, captions, *settings)[map_name]


def ground_maps(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Captions | None = None,
    lexicon: Lexicon | None = None,
    batch_size: int = 16,
    seed: int = 0,
    maps: Sequence[str] = (),
    curves: bool = True,
    hides_regions: bool = True,
) -> dict[str, GroundingReport]:
    """Test each word that names a category against the objects of that category.

    The model reads the captions by teacher forcing. An object is present if the model's crop shows
    a part of it. A mention is a hallucination if its category is neither annotated nor named by any
    of the image's references (Rohrbach et al. 2018). Mentions whose category only the references
    name, and those with a word that the model does not know, are not tested. Regions are not hidden
    for ensembles of models with different grids.

    Args:
        captioner: the model.
        records: images with their objects.
        captions: the model's caption of each image; None to read all references.
        lexicon: maps words to categories; default: that of the records' categories.
        batch_size: captions per batch.
        seed: of the random regions that are hidden.
        maps: names in `captioning.maps`, or of attention heads; default: the model's default map.
        curves: also compute deletion and insertion curves, of the baselines too.
        hides_regions: compute what needs hidden regions: occlusion drops, and the curves.

    Returns:
        The report of each map by its name, for the same words.

    Raises:
        InputError: a photo cannot be read, a mask cannot be decoded or is of another photo, or the
            model does not have a map.
    """
    lexicon = lexicon or Lexicon.of(categories(records))
    maps = maps or [captioner.default_map]
    generators = {name: torch.Generator().manual_seed(seed) for name in maps}
    orders = torch.Generator().manual_seed(seed)
    looks: dict[str, list[Look]] = {name: [] for name in maps}
    seconds = dict.fromkeys(maps, 0.0)
    named: list[Named] = []
    words = 0
    most = max((len(record.captions) for record in records), default=1) if captions is None else 1
    parts = cut(records, max(1, batch_size // max(most, 1)))
    with_photos = ((part, [record.image for record in part]) for part in parts)
    units = "photos" if len(maps) == 1 else "maps of photos"
    with ProgressBar("ground", units, total=len(records) * len(maps)) as bar:
        for part, _, views in read_ahead(captioner, with_photos):
            batch = _Batch.of(captioner, part, views, captions, lexicon)
            named += [image.named for image in batch.images]
            words += int((batch.captioned.tokens[..., 1:] != PAD).sum())  # including EOS
            baselines: list[dict[str, Areas]] | None = None
            for name in maps:
                began = time.perf_counter()
                weights = word_maps(name, batch.captioned)
                seconds[name] += time.perf_counter() - began
                found = batch.looks(weights)
                is_over_regions = batch.captioned.annotations.shape[1] == weights[0, 0, 0].numel()
                if found and hides_regions and is_over_regions:
                    if curves and baselines is None:
                        baselines = batch.baselines([each for each, _ in found], orders)
                    looks[name] += batch.faithful(found, generators[name], baselines)
                else:
                    looks[name] += [look for _, look in found]
                bar.update(len(part))
    return {
        name: GroundingReport(
            of_map, named, name, captions is None, 1000 * seconds[name] / max(words, 1)
        )
        for name, of_map in looks.items()
    }


@dataclass(frozen=True)
class _Batch:
    """Captions that the model reads, and the objects that they name.

    Attributes:
        captioned: the images with their captions, padded to the same number for every image.
        images: the mentions of each image.
    """

    captioned: Captioned
    images: Sequence["_ImageMentions"]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        captioner: Captioner,
        records: Sequence[Record],
        views: Sequence[View | InputError],
        given: Captions | None,
        lexicon: Lexicon,
    ) -> "_Batch":
        """The batch of some images, with the given captions or with all references."""
        for view in views:
            if isinstance(view, InputError):
                raise view
        seen = [view for view in views if isinstance(view, View)]
        images = torch.stack([view.pixels for view in seen]).to(captioner.device)
        # Tokenized as for the lexicon, whatever tokenizer the model was trained with.
        captions = [
            [
                tokenize(text)
                for text in (record.captions if given is None else [given[record.image_id]])
            ]
            for record in records
        ]
        most = max(1, *map(len, captions))
        padded = [[*its_captions, *[[]] * (most - len(its_captions))] for its_captions in captions]
        ids = [torch.tensor(captioner.vocabulary.ids(words)) for its in padded for words in its]
        tokens = pad_sequence(ids, batch_first=True, padding_value=PAD).unflatten(0, (-1, most))
        captioned = Captioned(
            captioner.model, images, captioner.encode(images), tokens.to(captioner.device)
        )
        known = frozenset(captioner.vocabulary.words)
        mentions = [
            _ImageMentions.of(record, view, None if given is None else words, lexicon, known)
            for record, view, [words, *_] in zip(records, seen, padded, strict=True)
        ]
        return cls(captioned, mentions)

    @property
    def read(self) -> tuple[Model, Float[Tensor, "C L D"], Tensor]:
        """The model, and the annotations and tokens of each caption that it reads."""
        read = self.captioned
        repeated = read.annotations.repeat_interleave(read.tokens.shape[1], dim=0)
        return read.model, repeated, read.tokens.flatten(0, 1)

    def looks(self, weights: Float[Tensor, "B N T rows columns"]) -> list[tuple[Phrase, Look]]:
        """A look for each tested mention, with its position among the C captions."""
        maps = weights.double().cpu().numpy()
        captions = maps.shape[1]
        return [
            (
                (number * captions + caption, mention.start, mention.stop),
                image.look(caption, mention, maps[number, caption]),
            )
            for number, image in enumerate(self.images)
            for caption, mention in image.tested
        ]

    @torch.no_grad()
    def faithful(
        self,
        found: Sequence[tuple[Phrase, Look]],
        generator: torch.Generator,
        baselines: Sequence[dict[str, Areas]] | None,
    ) -> list[Look]:
        """The looks with occlusion drops and, given the baselines, with the areas under curves."""
        phrases = [phrase for phrase, _ in found]
        weights = np.stack([look.weights for _, look in found])
        maps = torch.from_numpy(weights).flatten(1).to(self.captioned.annotations)
        drops = occlusion_drops(*self.read, phrases, maps, self.captioned.grid, generator)
        looks = [replace(look, drops=each) for (_, look), each in zip(found, drops, strict=True)]
        if baselines is None:
            return looks
        areas = curve_areas(*self.read, phrases, maps[:, None])
        return [
            replace(look, areas={MODEL: own, **others})
            for look, [own], others in zip(looks, areas, baselines, strict=True)
        ]

    @torch.no_grad()
    def baselines(
        self, phrases: Sequence[Phrase], generator: torch.Generator
    ) -> list[dict[str, Areas]]:
        """The areas under the curves of the Gaussian, and of regions in random order."""
        middle = torch.from_numpy(gaussian(self.captioned.grid)).flatten()
        noise = torch.rand(len(phrases), len(middle), generator=generator, dtype=middle.dtype)
        maps = torch.stack([middle.expand_as(noise), noise], dim=1)
        maps = maps.to(self.captioned.annotations.device)
        found = curve_areas(*self.read, phrases, maps)
        return [{GAUSSIAN: centred, RANDOM: at_random} for centred, at_random in found]


@dataclass(frozen=True)
class _ImageMentions:
    """The objects that the captions of an image name.

    Attributes:
        record: the image with its objects.
        view: the part of it that the model sees.
        tested: index of the caption and mention of objects in the crop, by words the model knows.
        named: counts of all mentions.
        places: of the categories on grids, as far as they have been needed.
    """

    record: Record
    view: View
    tested: Sequence[tuple[int, Mention]]
    named: Named
    places: dict[tuple[str, tuple[int, int]], Place | None]

    @classmethod
    def of(
        cls,
        record: Record,
        view: View,
        generated: Sequence[str] | None,
        lexicon: Lexicon,
        known: frozenset[str],
    ) -> "_ImageMentions":
        """The mentions in a generated caption, or in all references if that is None."""
        by_people = named_by_people(record, lexicon)
        people_named = {mention.category for _, mention in by_people}
        mentions = by_people
        if generated is not None:
            mentions = [(0, mention) for mention in lexicon.mentions(generated)]
        wanted = {mention.category for _, mention in mentions} | people_named
        shown = {name for name in wanted if _place(record, name, view, (1, 1)) is not None}
        there = [(n, mention) for n, mention in mentions if mention.category in shown]
        tested = [(n, mention) for n, mention in there if known.issuperset(mention.name.split())]
        absent = tuple(
            mention for _, mention in mentions if mention.category not in shown | people_named
        )
        unknown = len(there) - len(tested)
        named = Named(
            record.image_id, len(mentions), absent, unknown, frozenset(people_named & shown)
        )
        return cls(record, view, tested, named, {})

    def look(
        self, caption: int, mention: Mention, maps: Float[np.ndarray, "T rows columns"]
    ) -> Look:
        """The look of a mention, from the maps of its caption's words."""
        key = mention.category, (maps.shape[1], maps.shape[2])
        if key not in self.places:
            self.places[key] = _place(self.record, key[0], self.view, key[1])
        place = self.places[key]
        assert place is not None  # a tested object is inside the crop on any grid
        weights = maps[mention.start : mention.stop].mean(axis=0)
        return Look(
            *(self.record.image_id, self.record.image, mention, weights, place),
            *(self.view.crop, self.view.size),
            caption=caption,
        )


def _place(record: Record, category: str, view: View, grid: tuple[int, int]) -> Place | None:
    """The place of a category's objects in the model's crop; None if there are none."""
    objects = [thing for thing in record.objects if thing.name == category]
    try:
        return Place.of(objects, view.size, view.crop, grid) if objects else None
    except InputError as error:
        raise InputError(f"{record.image}: {category}: {error}") from None
