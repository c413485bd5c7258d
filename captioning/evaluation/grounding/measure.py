"""Whether a model's maps of words point at the objects that the words name.

Shapes: B images, N captions per image, T words, P mentions of objects.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from captioning.captioner import Captioner
from captioning.captioner.decoded_batch import encode_batch
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.data.dataset import pad_captions
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.grounding.faithfulness import Span, faithfulness
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import (
    ImageMentions,
    Lexicon,
    Mention,
    categories,
    named_by_people,
)
from captioning.evaluation.grounding.targets import GroundedMention, Target, map_values
from captioning.maps import CaptionedBatch, Maps, word_maps
from captioning.progress_bar import ProgressBar


def ground(
    captioner: Captioner,
    records: Sequence[Record],
    captions: Mapping[int | str, str] | None = None,
    lexicon: Lexicon | None = None,
    *,
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
    name, and those with a word that the model does not know, are not tested.

    Args:
        captioner: the model.
        records: images with their objects.
        captions: the model's, by image id; None to read all references.
        lexicon: default: that of the records' categories.
        batch_size: captions per batch.
        seed: of the random regions that are hidden.
        maps: names in `captioning.maps`, or of attention heads; default: the model's default map.
        drops: compute how much the words' probability drops when regions are hidden.
        curves: also compute deletion and insertion curves, of the baselines too.

    Returns:
        The reports of the same words by map.

    Raises:
        InputError: a photo or a mask cannot be read, or the model does not have a map.
    """
    names = maps or [captioner.default_map]
    words = _caption_words(records, captions)
    side = captioner.preprocessing.size
    finder = MentionFinder(
        lexicon=lexicon or Lexicon.of(categories(records)),
        vocabulary=frozenset(captioner.vocabulary.words),
        grid=captioner.model.encoder.grid(side, side),
        cell_offset=captioner.model.encoder.cell_offset(side),
    )
    scorer = MapScorer(drops, curves, seed)
    mentions: dict[str, list[GroundedMention]] = {name: [] for name in names}
    image_mentions: list[ImageMentions] = []
    seconds = dict.fromkeys(names, 0.0)
    token_count = 0
    with ProgressBar("ground", "photos", total=len(records)) as progress:
        for batch_photos, batch in _read_captions(captioner, records, words, batch_size=batch_size):
            token_count += int((batch.tokens[..., 1:] != PAD).sum())  # including EOS
            batch_maps = _timed_maps(names, batch, seconds)
            photo_mentions = []
            for photo in batch_photos:
                caption_words = None if captions is None else words[photo.number][0]
                record = records[photo.number]
                photo_mentions.append(finder.find(record, photo.view, caption_words))
            image_mentions += [photo_mention.counts for photo_mention in photo_mentions]
            for name, batch_mentions in scorer.score(photo_mentions, batch, batch_maps).items():
                mentions[name] += batch_mentions
            progress.update(len(batch_photos))
    return {
        name: GroundingReport(
            mentions=mentions[name],
            images=image_mentions,
            map_name=name,
            references=captions is None,
            milliseconds=1000 * seconds[name] / max(token_count, 1),
        )
        for name in names
    }


def _caption_words(
    records: Sequence[Record], captions: Mapping[int | str, str] | None
) -> list[list[list[str]]]:
    """Tokenize one caption, or all references, of each record.

    The tokenizer is that of lexicons, whichever tokenizer the model was trained with.
    """
    if captions is None:
        return [[tokenize(text) for text in record.captions] for record in records]
    return [[tokenize(captions[record.image_id])] for record in records]


def _read_captions(
    captioner: Captioner,
    records: Sequence[Record],
    words: Sequence[Sequence[Sequence[str]]],
    *,
    batch_size: int,
) -> Iterator[tuple[list[StreamedPhoto], CaptionedBatch]]:
    """Encode the photos of records, and pair them with the captions of the same records.

    `batch_size` is the number of captions in a batch.
    """
    tokens: list[list[torch.Tensor]] = []
    for captions in words:
        ids = [torch.tensor(captioner.vocabulary.ids(caption)) for caption in captions or [[]]]
        tokens.append([caption[1:] for caption in ids])  # without BOS

    @torch.no_grad()
    def captioned_batch(
        photos: Sequence[StreamedPhoto | PhotoError],
    ) -> tuple[list[StreamedPhoto], CaptionedBatch]:
        readable_photos = list(raise_errors(photos))
        batch_tokens = pad_captions([tokens[photo.number] for photo in readable_photos])
        encoded = encode_batch(captioner.network, readable_photos)
        return readable_photos, encoded.captioned(
            captioner.network, batch_tokens.to(captioner.device)
        )

    photos = [record.image for record in records]
    captions_per_image = max((len(captions) for captions in tokens), default=1)
    size = max(1, batch_size // captions_per_image)
    return captioner.batches(photos, captioned_batch, size, in_turn=True)


def _timed_maps(
    names: Sequence[str], batch: CaptionedBatch, seconds: dict[str, float]
) -> dict[str, Maps]:
    """Compute maps of all words by name, and add the time that each takes to `seconds`."""
    maps = {}
    for name in names:
        start = time.perf_counter()
        maps[name] = word_maps(name, batch)
        seconds[name] += time.perf_counter() - start
    return maps


@dataclass(frozen=True)
class LocatedMention:
    """A mention of an object that the model's crop shows.

    Attributes:
        record: the photo.
        caption: the index of the caption among the captions that are read.
        mention: the words, and the category that they name.
        target: where the category's objects are.
    """

    record: Record
    caption: int
    mention: Mention
    target: Target


@dataclass(frozen=True)
class PhotoMentions:
    """The mentions of a photo that are tested, and the numbers of all."""

    mentions: list[LocatedMention]
    counts: ImageMentions


@dataclass(frozen=True)
class MentionFinder:
    """Finds the words of captions that name objects, and the objects.

    Attributes:
        lexicon: the words that name each category.
        vocabulary: the words that the model knows.
        grid: rows and columns of the model's maps.
        cell_offset: of the cells of the grid, in rows and columns.
    """

    lexicon: Lexicon
    vocabulary: frozenset[str]
    grid: tuple[int, int]
    cell_offset: tuple[float, float]

    def find(
        self, record: Record, view: View, caption_words: Sequence[str] | None
    ) -> PhotoMentions:
        """Find the mentions in a generated caption or, if there is none, in all references.

        Raises:
            InputError: a mask cannot be decoded, or is of a photo of another size.
        """
        mentions = reference_mentions = named_by_people(record, self.lexicon)
        if caption_words is not None:
            mentions = [(0, mention) for mention in self.lexicon.mentions(caption_words)]
        reference_categories = {mention.category for _, mention in reference_mentions}
        targets = {
            category: self._target(record, view, category)
            for category in {mention.category for _, mention in mentions}
        }
        located: list[LocatedMention] = []
        hallucinated: list[Mention] = []
        unknown_count = 0
        for caption, mention in mentions:
            target = targets[mention.category]
            if target is None:
                if mention.category not in reference_categories:
                    hallucinated.append(mention)
            elif self.vocabulary.issuperset(mention.name.split()):
                located.append(LocatedMention(record, caption, mention, target))
            else:
                unknown_count += 1
        counts = ImageMentions(len(mentions), tuple(hallucinated), unknown_count)
        return PhotoMentions(located, counts)

    def _target(self, record: Record, view: View, category: str) -> Target | None:
        objects = [image_object for image_object in record.objects if image_object.name == category]
        try:
            return Target.of(
                objects,
                size=view.size,
                crop=view.crop,
                grid=self.grid,
                cell_offset=self.cell_offset,
            )
        except InputError as error:
            raise InputError(f"{record.image}: {category}: {error}") from None


class MapScorer:
    """Scores the maps of the words of mentions.

    Args:
        drops: compute how much the words' probability drops when regions are hidden.
        curves: also compute deletion and insertion curves.
        seed: of the random regions and orders.
    """

    def __init__(self, drops: bool, curves: bool, seed: int) -> None:
        self.drops = drops
        self.noise_generator = torch.Generator().manual_seed(seed)
        self.order_generator = torch.Generator().manual_seed(seed) if curves else None

    def score(
        self, photos: Sequence[PhotoMentions], batch: CaptionedBatch, maps: Mapping[str, Maps]
    ) -> dict[str, list[GroundedMention]]:
        """Score the maps of a batch; returns the same mentions by the name of each map."""
        mentions: list[LocatedMention] = []
        spans: list[Span] = []
        for image, photo in enumerate(photos):
            for located in photo.mentions:
                row = image * batch.tokens.shape[1] + located.caption
                mentions.append(located)
                spans.append(Span(row, located.mention.start, located.mention.stop))
        if not mentions:
            return {}
        span_maps = {name: _span_means(maps[name], spans) for name in maps}
        values: dict[str, list[dict[str, float]]] = dict.fromkeys(maps, [{}] * len(spans))
        if self.drops:
            values = faithfulness(
                batch,
                spans,
                span_maps,
                noise_generator=self.noise_generator,
                order_generator=self.order_generator,
            )
        return {name: _grounded_mentions(mentions, span_maps[name], values[name]) for name in maps}


def _span_means(maps: Maps, spans: Sequence[Span]) -> Float[np.ndarray, "P rows columns"]:
    """Average the maps of the words of each span."""
    caption_maps = maps.double().flatten(0, 1).cpu().numpy()
    return np.stack(
        [caption_maps[span.caption, span.start : span.stop].mean(axis=0) for span in spans]
    )


def _grounded_mentions(
    mentions: Sequence[LocatedMention],
    maps: Float[np.ndarray, "P rows columns"],
    values: Sequence[Mapping[str, float]],
) -> list[GroundedMention]:
    """Score the maps of mentions, and add the scores to values that have been computed."""
    grounded = []
    for located, weights, mention_values in zip(mentions, maps, values, strict=True):
        scores = map_values(weights, located.target) | dict(mention_values)
        grounded.append(
            GroundedMention(
                image_id=located.record.image_id,
                image=located.record.image,
                caption=located.caption,
                mention=located.mention,
                target=located.target,
                weights=weights,
                values=scores,
            )
        )
    return grounded
