"""Measures the grounding of a model's captions in the photos' objects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.data.records import ImageObject, Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.faithfulness import occlusion_drops
from captioning.evaluation.grounding.grounding_report import GroundingReport, Named
from captioning.evaluation.grounding.lexicon import Lexicon
from captioning.evaluation.grounding.looks import Look
from captioning.inference.batches import cut, read_ahead
from captioning.progress_bar import ProgressBar


class _Forced(NamedTuple):
    """The attention of a model under teacher forcing of given captions.

    Attributes:
        annotations: of the images.
        tokens: the captions from BOS on, PAD after their end.
        weights: attention while each word was written.
        grid: rows and columns of the R regions.
    """

    annotations: Float[Tensor, "B L D"]
    tokens: Int[Tensor, "B S"]
    weights: Float[Tensor, "B T R"]
    grid: tuple[int, int]


def ground(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Mapping[int | str, str],
    lexicon: Lexicon | None = None,
    batch_size: int = 16,
    seed: int = 0,
) -> GroundingReport:
    """Test each word that names a category against the objects of that category.

    The captions are scored by teacher forcing, so that attention is known whatever search found
    them. An object is present if the model's crop shows a part of it. A mention is a hallucination
    if its category is neither annotated nor named by any of the image's references (Rohrbach et al.
    2018). If only references name it, its place is unknown and it is not tested. Occlusion is left
    out for ensembles whose members' grids differ.

    Args:
        captioner: the model.
        records: images, with their objects.
        captions: the model's caption of each image.
        lexicon: maps words to categories; by default the one for the records' objects.
        batch_size: images per batch.
        seed: of the random regions that are hidden.

    Raises:
        InputError: a photo cannot be read, a mask cannot be decoded, or is of another photo.
    """
    lexicon = lexicon or Lexicon.of(categories(records))
    generator = torch.Generator().manual_seed(seed)
    looks: list[Look] = []
    named: list[Named] = []
    with ProgressBar("ground", "images", total=len(records)) as bar:
        for part, views in _read(captioner, records, batch_size):
            forced = _forced(captioner, views, [captions[record.image_id] for record in part])
            found = []
            for number, (record, view) in enumerate(zip(part, views, strict=True)):
                words = tokenize(captions[record.image_id])
                its_named, its_looks = _looks(
                    record, view, words, _maps(forced.weights[number], forced.grid), lexicon
                )
                named.append(its_named)
                found += [(number, look) for look in its_looks]
            looks += _tried(captioner, forced, found, generator)
            bar.update(len(part))
    return GroundingReport(looks, named)


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
def _forced(captioner: Captioner, views: Sequence[View], captions: Sequence[str]) -> _Forced:
    """The model's attention under teacher forcing of the captions."""
    images = torch.stack([view.pixels for view in views]).to(captioner.device)
    annotations = captioner.encode(images)
    # Tokenized as for the lexicon, whatever tokenizer the model was trained with.
    ids = [torch.tensor(captioner.vocabulary.ids(tokenize(caption))) for caption in captions]
    tokens = pad_sequence(ids, batch_first=True, padding_value=PAD).to(captioner.device)
    _, weights = captioner.decoder(annotations, tokens[:, None, :-1])
    grid = captioner.encoder.grid(images.shape[2], images.shape[3])
    return _Forced(annotations, tokens, weights[:, 0], grid)


def _maps(
    weights: Float[Tensor, "T R"], grid: tuple[int, int]
) -> Float[np.ndarray, "T rows columns"]:
    maps: Float[np.ndarray, "T rows columns"] = weights.double().cpu().unflatten(1, grid).numpy()
    return maps


def _looks(
    record: Record,
    view: View,
    words: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    lexicon: Lexicon,
) -> tuple[Named, list[Look]]:
    """The objects that a caption names, and the looks of those that are present."""
    mentions = lexicon.mentions(words)
    people_named = {
        mention.category
        for caption in record.captions
        for mention in lexicon.mentions(tokenize(caption))
    }
    places = {
        category: _place(record, category, view, maps.shape[1:])
        for category in {mention.category for mention in mentions}
    }
    looks, absent = [], []
    for mention in mentions:
        place = places[mention.category]
        if place is not None:
            weights = maps[mention.start : mention.stop].mean(axis=0)
            looks.append(
                Look(record.image_id, record.image, mention, weights, place, view.crop, view.size)
            )
        elif mention.category not in people_named:
            absent.append(mention.name)
    return Named(len(mentions), tuple(absent)), looks


def _place(record: Record, category: str, view: View, grid: tuple[int, ...]) -> Place | None:
    """The place of a category's objects in the model's crop; None if it shows none."""
    objects: list[ImageObject] = [thing for thing in record.objects if thing.name == category]
    try:
        return Place.of(objects, view.size, view.crop, (grid[0], grid[1])) if objects else None
    except InputError as error:
        raise InputError(f"{record.image}: {category}: {error}") from None


@torch.no_grad()
def _tried(
    captioner: Captioner,
    forced: _Forced,
    looks: Sequence[tuple[int, Look]],
    generator: torch.Generator,
) -> list[Look]:
    """The looks, each given with its image's index in the batch, with their occlusion drops."""
    regions = forced.annotations.shape[1]
    if not looks or forced.weights.shape[2] != regions:  # an ensemble with different grids
        return [look for _, look in looks]
    weights = np.stack([look.weights for _, look in looks]).reshape(len(looks), regions)
    found = occlusion_drops(
        captioner.decoder,
        forced.annotations,
        forced.tokens,
        [(number, look.mention.start, look.mention.stop) for number, look in looks],
        torch.from_numpy(weights).to(captioner.device, forced.weights.dtype),
        generator,
    )
    return [replace(look, drops=each) for (_, look), each in zip(looks, found, strict=True)]
