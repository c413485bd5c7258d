"""Whether a model's maps of words point at the objects that the words name.

Shapes: B images, N captions per image, T words, P mentions of objects.
"""

import time
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from jaxtyping import Float

from captioning.captioner import Captioner
from captioning.captioner.captioner import Viewed
from captioning.data.dataset import padded
from captioning.data.preprocessing import View
from captioning.data.records import Record
from captioning.data.tokens import tokenize
from captioning.data.vocabulary import PAD
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.evaluation.grounding.faithfulness import Phrase, curve_areas, occlusion_drops
from captioning.evaluation.grounding.grounding_report import GroundingReport
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
    GroundedMention,
    gaussian,
    map_values,
)
from captioning.evaluation.grounding.targets import Target
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
    known = frozenset(captioner.vocabulary.words)
    names = maps or [captioner.default_map]
    random = {name: torch.Generator().manual_seed(seed) for name in names}
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
    def read(photos: Sequence[Viewed | PhotoError]) -> tuple[list[Viewed], Captioned]:
        viewed = list(raise_errors(photos))
        images = torch.stack([each.view.pixels for each in viewed]).to(captioner.device)
        tokens = padded([ids[each.number] for each in viewed]).to(captioner.device)
        return viewed, Captioned(captioner.model, images, captioner.encode(images), tokens)

    photos = [record.image for record in records]
    size = max(1, batch_size // max(map(len, ids), default=1))
    with ProgressBar("ground", "photos", total=len(records)) as bar:
        for viewed, captioned in captioner.batches(photos, read, size, in_turn=True):
            words += int((captioned.tokens[..., 1:] != PAD).sum())  # including EOS
            found = {}
            for name in names:
                began = time.perf_counter()
                found[name] = word_maps(name, captioned)
                seconds[name] += time.perf_counter() - began
            grid = found[names[0]].shape[3], found[names[0]].shape[4]
            tested, phrases = [], []
            for image, (number, _, view) in enumerate(viewed):
                record, own = records[number], None if captions is None else texts[number][0]
                its, count = _named_objects(record, view, own, lexicon, known, grid)
                counts.append(count)
                for caption, mention, target in its:
                    row = image * captioned.tokens.shape[1] + caption
                    tested.append((record.image_id, record.image, caption, mention, target))
                    phrases.append((row, mention.start, mention.stop))
            bar.update(len(viewed))
            if not tested:
                continue
            means = {name: _means(of_words, phrases) for name, of_words in found.items()}
            hidden: dict[str, list[dict[str, float]]] = dict.fromkeys(names, [{}] * len(tested))
            if drops and captioned.annotations.shape[1] == prod(grid):
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
) -> tuple[list[tuple[int, Mention, Target]], ImageMentions]:
    """The mentions to test, each with its caption's index, and the counts of all.

    They are in a generated caption, or in all references if that is None.
    """
    mentions = by_people = named_by_people(record, lexicon)
    if generated is not None:
        mentions = [(0, mention) for mention in lexicon.mentions(generated)]
    of_people = {mention.category for _, mention in by_people}
    targets: dict[str, Target | None] = {}
    for name in {mention.category for _, mention in mentions}:
        objects = [thing for thing in record.objects if thing.name == name]
        try:
            targets[name] = Target.of(objects, view.size, view.crop, grid)
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


def _means(
    maps: Float[torch.Tensor, "B N T rows columns"], phrases: Sequence[Phrase]
) -> Float[np.ndarray, "P rows columns"]:
    """The mean map of the words of each phrase."""
    by_caption = maps.double().flatten(0, 1).cpu().numpy()
    return np.stack([by_caption[row, start:stop].mean(axis=0) for row, start, stop in phrases])


@torch.no_grad()
def _faithfulness(
    captioned: Captioned,
    phrases: Sequence[Phrase],
    maps: Mapping[str, Float[np.ndarray, "P rows columns"]],
    random: Mapping[str, torch.Generator],
    orders: torch.Generator | None,
) -> dict[str, list[dict[str, float]]]:
    """The values of each phrase when regions are hidden, by the names of the maps.

    Args:
        captioned: the captions.
        phrases: their mentions.
        maps: of the phrases.
        random: draws the regions that are hidden at random.
        orders: draws the random order of the curves; None for no curves.
    """
    annotations = captioned.annotations.repeat_interleave(captioned.tokens.shape[1], dim=0)
    read = captioned.model, annotations, captioned.tokens.flatten(0, 1), phrases
    flat = {name: torch.from_numpy(its).flatten(1).to(annotations) for name, its in maps.items()}
    parts = {
        name: [occlusion_drops(*read, its, captioned.grid, random[name])]
        for name, its in flat.items()
    }
    if orders is not None:
        middle = torch.from_numpy(gaussian(captioned.grid)).flatten()
        noise = torch.rand(len(phrases), len(middle), generator=orders, dtype=middle.dtype)
        both = {GAUSSIAN: middle.expand_as(noise), RANDOM: noise}
        baselines = curve_areas(
            *read, {name: its.to(annotations.device) for name, its in both.items()}
        )
        for name, its in flat.items():
            parts[name] += [curve_areas(*read, {MODEL: its}), baselines]
    return {
        name: [{k: v for part in its for k, v in part.items()} for its in zip(*of_map, strict=True)]
        for name, of_map in parts.items()
    }
