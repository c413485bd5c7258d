"""What is told of a decoded batch: captions with chances, alternatives and maps of their words.

Shapes: B images, N captions per image, T words, k alternatives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.captioner.calibration import confidence_features
from captioning.captioner.caption import Caption, RunnerUp
from captioning.captioner.decoded_batch import (
    DecodedBatch,
    PhotoView,
    encode_batch,
    token_log_probs,
)
from captioning.data.preprocessing import View
from captioning.data.vocabulary import EOS
from captioning.maps import ATTENTION, word_maps
from captioning.search.search import find_alternatives

if TYPE_CHECKING:
    from captioning.captioner.captioner import Captioner


@dataclass(frozen=True)
class Chances:
    """Calibrated probabilities of a batch's captions and words, as far as the model has them.

    Attributes:
        tokens: of each token.
        confidences: that each caption is good.
        kinds: `Calibration.kind` of each photo.
        runners_up: the words in place of each token, and their probabilities.
    """

    tokens: Float[Tensor, "B N T"]
    confidences: Float[Tensor, "B N"] | None
    kinds: Float[Tensor, " B"] | None
    runners_up: tuple[Int[Tensor, "B N T k"], Float[Tensor, "B N T k"]] | None


def describe(
    captioner: "Captioner",
    views: Sequence[PhotoView],
    batch: DecodedBatch,
    maps: Sequence[str] = (),
    runners_up: int = 0,
    has_confidence: bool = False,
) -> Iterator[Caption]:
    """The best caption of each photo, with the others that were found.

    Args:
        captioner: the model.
        views: the photos.
        batch: their captions, with logits if the model is calibrated or `runners_up` is not 0.
        maps: names of the maps to compute, and to show.
        runners_up: number of alternatives to each word.
        has_confidence: whether the calibration holds for the search that found the captions.
    """
    chances = calibrated_chances(captioner, batch, runners_up, has_confidence)
    side = captioner.preprocessing.size
    attention = batch.captions.weights.float()
    computed = {ATTENTION: attention.unflatten(3, captioner.model.encoder.grid(side, side)).cpu()}
    others = [name for name in maps if name != ATTENTION]
    if others:
        captioned = batch.captioned(captioner, batch.captions.tokens, attention)
        computed |= {name: word_maps(name, captioned).float().cpu() for name in others}
    scores = batch.captions.scores.cpu()
    shown_maps = tuple(maps) or (captioner.default_map,)
    for image, view in enumerate(views):
        count = max(int((~scores[image].isneginf()).sum()), 1)  # some beams cannot be
        captions = [
            _caption(captioner, view, batch, chances, computed, shown_maps, image, rank)
            for rank in range(count)
        ]
        yield replace(captions[0], others=tuple(captions[1:]))


def calibrated_chances(
    captioner: "Captioner", batch: DecodedBatch, runners_up: int, has_confidence: bool
) -> Chances:
    """The probabilities of captions and words, calibrated if the model is."""
    calibration, captions = captioner.calibration, batch.captions
    logits, log_probs = batch.logits, captions.log_probs
    confidences = kinds = alternatives = None
    if calibration is not None and logits is not None:
        kinds = calibration.kind(batch.annotations)
        if has_confidence:
            places = captioner.vocabulary.frequency_ranks
            features = confidence_features(captions, logits, kinds, places)
            confidences = calibration.confidence(features).cpu()
        logits = logits / calibration.temperature
        log_probs = token_log_probs(logits, captions.tokens)
    if runners_up and logits is not None:
        words, probabilities = find_alternatives(logits, captions.tokens, runners_up)
        alternatives = words.cpu(), probabilities.cpu()
    return Chances(log_probs.exp().cpu(), confidences, kinds, alternatives)


def _caption(
    captioner: "Captioner",
    photo_view: PhotoView,
    batch: DecodedBatch,
    chances: Chances,
    maps: Mapping[str, Float[Tensor, "B N T rows columns"]],
    shown_maps: tuple[str, ...],
    image: int,
    rank: int,
) -> Caption:
    """One caption of one image of the batch, by its rank among the image's captions."""
    view, tokens = photo_view.view, batch.captions.tokens[image, rank].cpu()
    words = captioner.vocabulary.spelt(tokens.tolist())
    length = len(words)
    probabilities = tuple(chances.tokens[image, rank, :length].tolist())
    confidence = None
    if chances.confidences is not None and EOS in tokens:  # it was not cut off
        confidence = chances.confidences[image, rank].item()
    named: tuple[float | None, ...] = ()
    calibration = captioner.calibration
    if calibration is not None and calibration.named and chances.kinds is not None:
        kind = chances.kinds[image].item()
        pairs = zip(words, probabilities, strict=True)
        named = tuple(calibration.chance_named(word, chance, kind) for word, chance in pairs)
    return Caption(
        words=words,
        probabilities=probabilities,
        named=named,
        score=batch.captions.scores[image, rank].item(),
        crop=view.crop,
        size=view.size,
        maps={name: of_words[image, rank, :length].numpy() for name, of_words in maps.items()},
        shown_maps=shown_maps,
        tokenizer=captioner.vocabulary.tokenizer,
        joints=captioner.vocabulary.joints,
        confidence=confidence,
        runners_up=_runners_up(captioner, chances, image, rank, length),
        photo=None if isinstance(photo_view.photo, View) else photo_view.photo,
        _compute=partial(_map, captioner, photo_view, tokens, length),
        _measure=partial(captioner.model.encoder.cell_offset, captioner.preprocessing.size),
    )


def _runners_up(
    captioner: "Captioner", chances: Chances, image: int, rank: int, length: int
) -> tuple[tuple[RunnerUp, ...], ...]:
    """The alternatives to each word of a caption; None stands for its end."""
    if chances.runners_up is None:
        return ()
    words, probabilities = (part[image, rank, :length].tolist() for part in chances.runners_up)
    alternatives = []
    for ids, of_ids in zip(words, probabilities, strict=True):
        spelt = (captioner.vocabulary.spelt([word])[0] if word != EOS else None for word in ids)
        alternatives.append(tuple(map(RunnerUp, spelt, of_ids)))
    return tuple(alternatives)


@torch.no_grad()
def _map(
    captioner: "Captioner", view: PhotoView, tokens: Int[Tensor, " T"], length: int, name: str
) -> Float[Tensor, "_ rows columns"]:
    """The map of the words of one caption, which was not computed with its batch."""
    batch = encode_batch(captioner, [view])
    captioned = batch.captioned(captioner, tokens.to(captioner.device)[None, None])
    return word_maps(name, captioned)[0, 0, :length].float().cpu()
