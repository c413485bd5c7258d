"""Measures the grounding of captions in the photos' objects, by one map of a word or by several.

Shapes: B images, N captions per image, C = B N captions, L regions, T words.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.evaluation.grounding.curves import areas
from captioning.evaluation.grounding.faithfulness import Phrase, occlusion_drops
from captioning.evaluation.grounding.grounding_report import GroundingReport, Named
from captioning.evaluation.grounding.lexicon import Lexicon
from captioning.evaluation.grounding.looks import GAUSSIAN, MODEL, RANDOM, Areas, Look, gaussian
from captioning.evaluation.grounding.mentions import ImageMentions
from captioning.inference.batches import cut, read_ahead
from captioning.maps import MapError, Reading, word_maps
from captioning.progress_bar import ProgressBar

Captions = Mapping[int | str, str]


@dataclass(frozen=True)
class _Batch:
    """Captions that the model reads, and what they name.

    Attributes:
        reading: the captions, padded to the same number for every image.
        images: of each image what its captions name.
    """

    reading: Reading
    images: Sequence[ImageMentions]

    @property
    def has_regions(self) -> bool:
        """Whether regions can be hidden: not for an ensemble with different grids."""
        rows, columns = self.reading.grid
        return self.reading.annotations.shape[1] == rows * columns

    @property
    def words(self) -> int:
        """How many words are read, ends included."""
        return int((self.reading.tokens[..., 1:] != PAD).sum())


def ground(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Captions | None = None,
    lexicon: Lexicon | None = None,
    batch_size: int = 16,
    seed: int = 0,
    map_name: str | None = None,
) -> GroundingReport:
    """The report of one map of a word, by its name, without curves; see `ground_maps`."""
    map_name = map_name or captioner.shown_map
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
    needs_all: bool = True,
) -> dict[str, GroundingReport]:
    """Test each word that names a category against the objects of that category.

    The captions are scored by teacher forcing, so that attention is known whatever search found
    them. An object is present if the model's crop shows a part of it. A mention is a hallucination
    if its category is neither annotated nor named by any of the image's references (Rohrbach et al.
    2018). If only references name it, its place is unknown and it is not tested. A mention with a
    word that the model does not know is not tested either. Occlusion is left out for ensembles
    whose members' grids differ.

    Args:
        captioner: the model.
        records: images, with their objects.
        captions: the model's caption of each image; none to let it read all references.
        lexicon: maps words to categories; by default the one for the records' objects.
        batch_size: images per batch.
        seed: of the random regions that are hidden.
        maps: of a word that are tested, by their names in `captioning.maps` or the decoder's
            `map_names`; the one that the model shows if none.
        curves: also compute deletion and insertion curves, of the baselines too.
        hides_regions: compute what takes hidden regions: occlusion drops, and the curves.
        needs_all: refuse a model that lacks one of the maps, rather than leave that map out.

    Returns:
        The report of each map by its name, all of the same words.

    Raises:
        InputError: a photo cannot be read, a mask cannot be decoded, or is of another photo, or the
            model has no such map.
    """
    lexicon = lexicon or Lexicon.of(categories(records))
    maps = maps or [captioner.shown_map]
    generators = {name: torch.Generator().manual_seed(seed) for name in maps}
    orders = torch.Generator().manual_seed(seed)
    looks: dict[str, list[Look]] = {name: [] for name in maps}
    seconds = dict.fromkeys(maps, 0.0)
    named: list[Named] = []
    words = 0
    with ProgressBar("ground", "images", total=len(records)) as bar:
        for part, views in _read(captioner, records, batch_size):
            batch = _batch(captioner, part, views, captions, lexicon)
            named += [image.named for image in batch.images]
            words += batch.words
            baselines: list[dict[str, Areas]] | None = None
            for name in list(looks):
                began = time.perf_counter()
                try:
                    weights = word_maps(name, batch.reading)
                except MapError:
                    if needs_all:
                        raise
                    del looks[name]
                    continue
                seconds[name] += time.perf_counter() - began
                found = _looks(batch, weights)
                if not found or not hides_regions or not batch.has_regions:
                    looks[name] += [look for _, look in found]
                    continue
                relevance = _by_regions(batch, [look for _, look in found])
                phrases = [phrase for phrase, _ in found]
                its_looks = _with_drops(batch, found, relevance, generators[name])
                if curves:
                    baselines = baselines or _baselines(batch, phrases, orders)
                    own = _areas(batch, phrases, relevance[:, None])
                    its_looks = [
                        replace(look, areas={MODEL: of_map, **others})
                        for look, [of_map], others in zip(its_looks, own, baselines, strict=True)
                    ]
                looks[name] += its_looks
            bar.update(len(part))
    return {
        name: GroundingReport(
            of_map, named, name, captions is None, 1000 * seconds[name] / max(words, 1)
        )
        for name, of_map in looks.items()
    }


def categories(records: Iterable[Record]) -> set[str]:
    """The categories of the records' objects."""
    return {thing.name for record in records for thing in record.objects}


def _read(
    captioner: Captioner, records: Sequence[Record], batch_size: int
) -> Iterator[tuple[list[Record], list[View]]]:
    parts = [(part, [record.image for record in part]) for part in cut(records, batch_size)]
    for part, _, views in read_ahead(captioner, parts):
        for view in views:
            if isinstance(view, InputError):
                raise view
        yield part, [view for view in views if isinstance(view, View)]


@torch.no_grad()
def _batch(
    captioner: Captioner,
    records: Sequence[Record],
    views: Sequence[View],
    given: Captions | None,
    lexicon: Lexicon,
) -> _Batch:
    """What the model reads, by the plain code, and what the captions name."""
    images = torch.stack([view.pixels for view in views]).to(captioner.device)
    # Tokenized as for the lexicon, whatever tokenizer the model was trained with.
    generated = [None if given is None else tokenize(given[record.image_id]) for record in records]
    captions = [
        [tokenize(caption) for caption in record.captions] if words is None else [words]
        for record, words in zip(records, generated, strict=True)
    ]
    most = max(1, *map(len, captions))
    padded = [[*its_captions, *[[]] * (most - len(its_captions))] for its_captions in captions]
    ids = [torch.tensor(captioner.vocabulary.ids(words)) for its in padded for words in its]
    tokens = pad_sequence(ids, batch_first=True, padding_value=PAD).unflatten(0, (-1, most))
    reading = Reading(
        captioner.encoder,
        captioner.decoder,
        images,
        captioner.encode(images),
        tokens.to(captioner.device),
    )
    known = frozenset(captioner.vocabulary.words)
    return _Batch(
        reading,
        [
            ImageMentions.of(record, view, words, lexicon, known)
            for record, view, words in zip(records, views, generated, strict=True)
        ],
    )


def _looks(
    batch: _Batch, weights: Float[Tensor, "B N T rows columns"]
) -> list[tuple[Phrase, Look]]:
    """A look for each mention of an object that is there, and its place among the C captions."""
    maps = weights.double().cpu().numpy()
    captions = maps.shape[1]
    return [
        (
            (number * captions + caption, mention.start, mention.stop),
            image.look(caption, mention, maps[number, caption]),
        )
        for number, image in enumerate(batch.images)
        for caption, mention in image.tested
    ]


def _by_regions(batch: _Batch, looks: Sequence[Look]) -> Float[Tensor, "P L"]:
    """Each look's map over the attention's regions, whatever grid it has itself."""
    weights = torch.from_numpy(np.stack([look.weights for look in looks]))
    if weights.shape[1:] != batch.reading.grid:
        weights = F.adaptive_avg_pool2d(weights[:, None], batch.reading.grid)[:, 0]
        weights = weights / weights.sum(dim=(1, 2), keepdim=True)
    annotations = batch.reading.annotations
    return weights.flatten(1).to(annotations.device, annotations.dtype)


@torch.no_grad()
def _with_drops(
    batch: _Batch,
    found: Sequence[tuple[Phrase, Look]],
    relevance: Float[Tensor, "P L"],
    generator: torch.Generator,
) -> list[Look]:
    """The looks with their occlusion drops."""
    drops = occlusion_drops(
        batch.reading.decoder,
        *_captions(batch),
        [phrase for phrase, _ in found],
        relevance,
        batch.reading.grid,
        generator,
    )
    return [replace(look, drops=each) for (_, look), each in zip(found, drops, strict=True)]


def _baselines(
    batch: _Batch, phrases: Sequence[Phrase], generator: torch.Generator
) -> list[dict[str, Areas]]:
    """The areas of the Gaussian in the middle, and of regions in random order."""
    middle = torch.from_numpy(gaussian(batch.reading.grid)).flatten()
    noise = torch.rand(len(phrases), len(middle), generator=generator, dtype=middle.dtype)
    maps = torch.stack([middle.expand_as(noise), noise], dim=1)
    found = _areas(batch, phrases, maps.to(batch.reading.annotations.device))
    return [{GAUSSIAN: centred, RANDOM: at_random} for centred, at_random in found]


@torch.no_grad()
def _areas(
    batch: _Batch, phrases: Sequence[Phrase], maps: Float[Tensor, "P M L"]
) -> list[list[Areas]]:
    return areas(batch.reading.decoder, *_captions(batch), phrases, maps)


def _captions(batch: _Batch) -> tuple[Float[Tensor, "C L D"], Tensor]:
    """The annotation vectors and the tokens of each caption."""
    reading = batch.reading
    repeated = reading.annotations.repeat_interleave(reading.tokens.shape[1], dim=0)
    return repeated, reading.tokens.flatten(0, 1)
