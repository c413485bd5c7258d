"""Whether a model's maps of words point at the objects that the words name.

Shapes: B images, N captions per image, C = B N captions, L regions, T words.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner import Captioner
from captioning.captioner.captioner import Viewed
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.faithfulness import curve_areas, occlusion_drops
from captioning.evaluation.grounding.lexicon import (
    ImageMentions,
    Lexicon,
    Mention,
    categories,
    named_by_people,
)
from captioning.evaluation.grounding.mentions import (
    GAUSSIAN,
    MODEL,
    RANDOM,
    CurveAreas,
    GroundedMention,
    gaussian,
)
from captioning.evaluation.grounding.report import GroundingReport
from captioning.maps import Captioned, word_maps
from captioning.progress_bar import ProgressBar


def ground(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Mapping[int | str, str] | None = None,
    lexicon: Lexicon | None = None,
    batch_size: int = 16,
    seed: int = 0,
    maps: Sequence[str] = (),
    drops: bool = True,
    curves: bool = False,
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
        captions: the model's caption of each image, by image id; None to read all references.
        lexicon: maps words to categories; default: that of the records' categories.
        batch_size: captions per batch.
        seed: of the random regions that are hidden.
        maps: names in `captioning.maps`, or of attention heads; default: the model's default map.
        drops: compute how much the words' probability drops when regions are hidden.
        curves: also compute deletion and insertion curves, of the baselines too.

    Returns:
        The report of each map by its name, for the same words.

    Raises:
        InputError: a photo cannot be read, a mask cannot be decoded or is of another photo, or the
            model does not have a map.
    """
    lexicon = lexicon or Lexicon.of(categories(records))
    names = maps or [captioner.default_map]
    hidden = {name: torch.Generator().manual_seed(seed) for name in names}
    orders = torch.Generator().manual_seed(seed)
    mentions: dict[str, list[GroundedMention]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    counts: list[ImageMentions] = []
    words = 0
    most = max((len(record.captions) for record in records), default=1) if captions is None else 1
    photos = [record.image for record in records]

    def read(viewed: Sequence[Viewed | PhotoError]) -> _Batch:
        views = [each.view for each in raise_errors(viewed)]
        part = [records[each.number] for each in raise_errors(viewed)]
        return _Batch.of(captioner, part, views, captions, lexicon)

    size = max(1, batch_size // max(most, 1))
    with ProgressBar("ground", "photos", total=len(records)) as bar:
        for batch in captioner.batches(photos, read, size, in_turn=True):
            counts += [image.counts for image in batch.images]
            words += int((batch.captioned.tokens[..., 1:] != PAD).sum())  # including EOS
            baselines = batch.baselines(orders) if drops and curves else None
            for name in names:
                began = time.perf_counter()
                weights = word_maps(name, batch.captioned)
                seconds[name] += time.perf_counter() - began
                mentions[name] += batch.mentions(
                    weights, hidden[name] if drops else None, baselines
                )
            bar.update(len(batch.images))
    return {
        name: GroundingReport(
            of_map, counts, name, captions is None, 1000 * seconds[name] / max(words, 1)
        )
        for name, of_map in mentions.items()
    }


@dataclass(frozen=True)
class _Batch:
    """Captions that the model reads, and the objects that they name.

    Attributes:
        captioned: the images with their captions, padded to the same number for every image.
        images: the mentions of each image.
        phrases: of each tested mention the caption, among C, and start and stop in its words.
    """

    captioned: Captioned
    images: Sequence["_Image"]
    phrases: Sequence[tuple[int, int, int]]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        captioner: Captioner,
        records: Sequence[Record],
        views: Sequence[View],
        given: Mapping[int | str, str] | None,
        lexicon: Lexicon,
    ) -> "_Batch":
        """The batch of some images, with the given captions or with all references."""
        images = torch.stack([view.pixels for view in views]).to(captioner.device)
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
        mentioned = [
            _Image.of(record, view, None if given is None else words, lexicon, known)
            for record, view, [words, *_] in zip(records, views, padded, strict=True)
        ]
        phrases = [
            (number * most + caption, mention.start, mention.stop)
            for number, image in enumerate(mentioned)
            for caption, mention in image.tested
        ]
        return cls(captioned, mentioned, phrases)

    @torch.no_grad()
    def mentions(
        self,
        weights: Float[torch.Tensor, "B N T rows columns"],
        generator: torch.Generator | None,
        baselines: Sequence[dict[str, CurveAreas]] | None,
    ) -> list[GroundedMention]:
        """The tested mentions with a map.

        Args:
            weights: the map of every word.
            generator: draws the regions that are hidden at random; None to hide none.
            baselines: the areas under the curves of `baselines`; None for no curves.
        """
        maps = weights.double().cpu().numpy()
        found = [
            image.grounded(caption, mention, maps[number, caption])
            for number, image in enumerate(self.images)
            for caption, mention in image.tested
        ]
        regions = self.captioned.annotations.shape[1]
        if not found or generator is None or regions != weights[0, 0, 0].numel():
            return found
        stacked = np.stack([each.weights for each in found])
        flat = torch.from_numpy(stacked).flatten(1).to(self.captioned.annotations)
        drops = occlusion_drops(*self._read, self.phrases, flat, self.captioned.grid, generator)
        found = [replace(each, drops=its) for each, its in zip(found, drops, strict=True)]
        if baselines is None:
            return found
        areas = curve_areas(*self._read, self.phrases, flat[:, None])
        return [
            replace(each, areas={MODEL: own, **others})
            for each, [own], others in zip(found, areas, baselines, strict=True)
        ]

    @torch.no_grad()
    def baselines(self, generator: torch.Generator) -> list[dict[str, CurveAreas]]:
        """The areas under the curves of the Gaussian, and of regions in random order."""
        middle = torch.from_numpy(gaussian(self.captioned.grid)).flatten()
        if not self.phrases or self.captioned.annotations.shape[1] != len(middle):
            return []
        noise = torch.rand(len(self.phrases), len(middle), generator=generator, dtype=middle.dtype)
        maps = torch.stack([middle.expand_as(noise), noise], dim=1)
        found = curve_areas(*self._read, self.phrases, maps.to(self.captioned.annotations.device))
        return [{GAUSSIAN: centred, RANDOM: at_random} for centred, at_random in found]

    @property
    def _read(self) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
        """The model, and the annotations and tokens of each of the C captions."""
        read = self.captioned
        repeated = read.annotations.repeat_interleave(read.tokens.shape[1], dim=0)
        return read.model, repeated, read.tokens.flatten(0, 1)


@dataclass(frozen=True)
class _Image:
    """The objects that the captions of an image name.

    Attributes:
        record: the image with its objects.
        view: the part of it that the model sees.
        tested: index of the caption and mention of objects in the crop, by words the model knows.
        counts: of all mentions.
        places: of the categories on grids, as far as they have been needed.
    """

    record: Record
    view: View
    tested: Sequence[tuple[int, Mention]]
    counts: ImageMentions
    places: dict[tuple[str, tuple[int, int]], Place | None]

    @classmethod
    def of(
        cls,
        record: Record,
        view: View,
        generated: Sequence[str] | None,
        lexicon: Lexicon,
        known: frozenset[str],
    ) -> "_Image":
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
        counts = ImageMentions(record.image_id, len(mentions), absent, unknown)
        return cls(record, view, tested, counts, {})

    def grounded(
        self, caption: int, mention: Mention, maps: Float[np.ndarray, "T rows columns"]
    ) -> GroundedMention:
        """A mention with the mean map of its words."""
        key = mention.category, (maps.shape[1], maps.shape[2])
        if key not in self.places:
            self.places[key] = _place(self.record, key[0], self.view, key[1])
        place = self.places[key]
        assert place is not None  # a tested object is inside the crop on any grid
        weights = maps[mention.start : mention.stop].mean(axis=0)
        return GroundedMention(
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
