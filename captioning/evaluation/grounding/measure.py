"""Whether a model's maps of words point at the objects that the words name.

Shapes: B images, N captions per image, T words, P mentions of objects.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np
import torch
from jaxtyping import Float

from captioning.captioner import Captioner
from captioning.captioner.decoded_batch import PhotoView, encode_batch
from captioning.data.dataset import pad_captions
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.grounding.faithfulness import (
    DRAWS,
    curve_areas,
    occlusion_drops,
    phrase_probabilities,
)
from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import (
    ImageMentions,
    Lexicon,
    Mention,
    categories,
    named_by_people,
)
from captioning.evaluation.grounding.targets import GroundedMention, Target, gaussian, map_values
from captioning.maps import CaptionedBatch, word_maps
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
    lexicon = lexicon or Lexicon.of(categories(records))
    known = frozenset(captioner.vocabulary.words)
    names = maps or [captioner.default_map]
    random = torch.Generator().manual_seed(seed)
    orders = torch.Generator().manual_seed(seed) if curves else None
    mentions: dict[str, list[GroundedMention]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    counts: list[ImageMentions] = []
    words = 0
    # Tokenized as for the lexicon, whatever tokenizer the model was trained with.
    texts = [
        [*map(tokenize, each.captions if captions is None else [captions[each.image_id]])]
        for each in records
    ]
    to_ids = captioner.vocabulary.ids
    ids = [[torch.tensor(to_ids(words)) for words in its or [[]]] for its in texts]

    @torch.no_grad()
    def read(photos: Sequence[PhotoView | PhotoError]) -> tuple[list[PhotoView], CaptionedBatch]:
        views = list(raise_errors(photos))
        tokens = pad_captions([ids[view.number] for view in views]).to(captioner.device)
        batch = encode_batch(captioner, views)
        return views, CaptionedBatch(captioner.model, batch.images, batch.annotations, tokens)

    photos = [record.image for record in records]
    offset = captioner.model.encoder.cell_offset(captioner.preprocessing.size)
    size = max(1, batch_size // max(map(len, ids), default=1))
    with ProgressBar("ground", "photos", total=len(records)) as bar:
        for viewed, captioned in captioner.batches(photos, read, size, in_turn=True):
            words += int((captioned.tokens[..., 1:] != PAD).sum())  # including EOS
            found = {}
            for name in names:
                began = time.perf_counter()
                found[name] = word_maps(name, captioned)
                seconds[name] += time.perf_counter() - began
            rows, columns = found[names[0]].shape[3:]
            tested, phrases = [], []
            for image, (number, _, view) in enumerate(viewed):
                record, own = records[number], None if captions is None else texts[number][0]
                grid = rows, columns
                its, count = _named_objects(record, view, own, lexicon, known, grid, offset)
                counts.append(count)
                for caption, mention, target in its:
                    row = image * captioned.tokens.shape[1] + caption
                    tested.append((record.image_id, record.image, caption, mention, target))
                    phrases.append((row, mention.start, mention.stop))
            bar.update(len(viewed))
            if not tested:
                continue
            means = {}
            for name, of_words in found.items():
                flat = of_words.double().flatten(0, 1).cpu().numpy()
                means[name] = np.stack([flat[row, a:b].mean(axis=0) for row, a, b in phrases])
            hidden: dict[str, list[dict[str, float]]] = dict.fromkeys(names, [{}] * len(tested))
            if drops:
                hidden = _faithfulness(captioned, phrases, means, random, orders)
            for name in names:
                mentions[name] += [
                    GroundedMention(*each, weights, map_values(weights, each[-1]) | values)
                    for each, weights, values in zip(tested, means[name], hidden[name], strict=True)
                ]
    return {
        name: GroundingReport(
            of_map, counts, name, captions is None, 1000 * seconds[name] / max(words, 1)
        )
        for name, of_map in mentions.items()
    }


def _named_objects(
    record: Record,
    view: View,
    generated: Sequence[str] | None,
    lexicon: Lexicon,
    known: frozenset[str],
    grid: tuple[int, int],
    offset: tuple[float, float],
) -> tuple[list[tuple[int, Mention, Target]], ImageMentions]:
    """The mentions to test, in a generated caption or in all references, and the counts of all."""
    mentions = by_people = named_by_people(record, lexicon)
    if generated is not None:
        mentions = [(0, mention) for mention in lexicon.mentions(generated)]
    of_people = {mention.category for _, mention in by_people}
    targets: dict[str, Target | None] = {}
    for name in {mention.category for _, mention in mentions}:
        objects = [thing for thing in record.objects if thing.name == name]
        try:
            targets[name] = Target.of(objects, view.size, view.crop, grid, offset)
        except InputError as error:
            raise InputError(f"{record.image}: {name}: {error}") from None
    tested, absent, unknown = [], [], 0
    for caption, mention in mentions:
        target = targets[mention.category]
        if target is None:
            absent += [mention] * (mention.category not in of_people)
        elif known.issuperset(mention.name.split()):
            tested.append((caption, mention, target))
        else:
            unknown += 1
    return tested, ImageMentions(len(mentions), tuple(absent), unknown)


@torch.no_grad()
def _faithfulness(
    captioned: CaptionedBatch,
    phrases: Sequence[tuple[int, int, int]],
    maps: Mapping[str, Float[np.ndarray, "P rows columns"]],
    random: torch.Generator,
    orders: torch.Generator | None,
) -> dict[str, list[dict[str, float]]]:
    """The values of each phrase by map; curves only if `orders`, which draws a random one."""
    annotations = captioned.annotations.repeat_interleave(captioned.tokens.shape[1], dim=0)
    tokens = captioned.tokens.flatten(0, 1)
    read = partial(phrase_probabilities, captioned.model, annotations, tokens, phrases)
    shape = len(phrases), prod(captioned.grid)
    noise, baselines = torch.rand(shape[0], DRAWS, shape[1], generator=random), {}
    if orders is not None:
        middle = torch.from_numpy(gaussian(captioned.grid)).flatten().expand(shape)
        order = torch.rand(shape, generator=orders, dtype=middle.dtype)
        both = {"Gaussian": middle.to(tokens.device), "random": order.to(tokens.device)}
        baselines = curve_areas(read, both)
    found = {}
    for name, its in maps.items():
        weights = torch.from_numpy(its).flatten(1).to(annotations)
        columns = occlusion_drops(read, weights, captioned.grid, noise)
        if orders is not None:
            columns |= curve_areas(read, {"model": weights}) | baselines
        rows = torch.stack([*columns.values()], dim=1).tolist()
        found[name] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found
