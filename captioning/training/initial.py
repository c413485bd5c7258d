"""Starts a training from another model, whose words may be fewer."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.captioner import Captioner, load
from captioning.captioner.checkpoint import fitted_tensors
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.models import CNNEncoder
from captioning.progress_bar import say

SHARED = 4
"""Letters at the beginning that words must have in common to count as alike."""

UNLIKELY = math.log(1 / 100)
"""Added to the output bias of new words, which otherwise compete with the words they are like."""


def start_from(model: str, captioner: Captioner) -> None:
    """Copy the parameters of a model into a captioner, whose vocabulary may have more words.

    The rows of a new word start from the mean over the known words that begin like it, or over all.
    Its output bias is lower, so that the start says what the model says (`UNLIKELY`). Words of
    another language or tokenizer are all new, and equally likely. Words that people repeat by the
    model's captions may be repeated, words that only those have keep their spelling, and its words
    their ranks.

    Raises:
        InputError: no such model, by a file or name, or its parts or first words are others.
    """
    initial = load(model, kernels=False)
    parameters, alike = _parameters(initial, model, captioner)
    captioner.model.load_state_dict(parameters)
    captioner.model.encoder.offsets.update(initial.model.encoder.offsets)
    theirs, ours = initial.vocabulary, captioner.vocabulary
    repeatable = ours.repeatable
    if theirs.repeatable is not None and repeatable is not None:
        repeatable = {*repeatable, *theirs.repeatable}
    spellings = {**theirs.spellings, **ours.spellings}
    kept = set(ours.words[: len(ours.words) - len(alike)])
    ranks = {**ours.ranks, **{w: rank for w, rank in theirs.ranks.items() if w in kept}}
    joints = {**theirs.joints, **ours.joints} if kept else ours.joints
    captioner.vocabulary = Vocabulary(
        ours.words, ours.tokenizer, repeatable, spellings, ranks, joints
    )
    if isinstance(captioner.model.encoder, CNNEncoder):
        captioner.model.encoder.keep_statistics()  # as of pretrained weights
    if alike:
        some = sum(map(bool, alike))
        say(
            f"{len(kept):,} words of {Path(model).name}, and {len(alike):,} new ones, of which "
            f"{some:,} begin like known ones"
        )


def between(model: str, captioner: Captioner, share: float) -> Captioner:
    """A captioner with a share of the parameters that a trained one started from, from 0 to 1.

    On few photos, parameters between the two often caption better than either (Wortsman et al.
    2022, "Robust fine-tuning of zero-shot models", eq. 1). The trained one is left as it is.
    """
    first, _ = _parameters(load(model, kernels=False), model, captioner)
    mixed = Captioner.from_config(captioner.config)
    mixed.model.encoder.offsets.clear()
    mixed.model.load_state_dict(
        {
            name: value.lerp(first[name], share) if value.is_floating_point() else value
            for name, value in captioner.model.state_dict().items()
        }
    )
    return mixed.freeze()


def _parameters(
    initial: Captioner, model: str, captioner: Captioner
) -> tuple[dict[str, Tensor], list[list[int]]]:
    """A model's parameters, with rows for new words, and the known words that those are like."""
    known, words = initial.vocabulary.words, captioner.vocabulary.words
    same = initial.vocabulary.tokenizer == captioner.vocabulary.tokenizer
    if not same or not set(words).issuperset(known):
        known = ()
    if words[: len(known)] != known:
        raise InputError(f"{model}: its words are not the first ones of the vocabulary")
    theirs, ours = (each.model.state_dict() for each in (initial, captioner))
    alike = _alike(words[len(known) :], known)
    for name, value in ours.items():
        first = theirs.get(name, value)
        if value.shape != first.shape and len(value) == len(captioner.vocabulary):
            theirs[name] = _extended(first, len(known), alike)
    try:
        fitted_tensors(ours, theirs)
    except InputError as error:
        raise InputError(f"{model}: {error}") from None
    return theirs, alike


def _alike(new: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """For each new word the ids of the known words that begin most like it; empty for none."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for index, word in enumerate(known, len(SPECIAL)):
        for length in range(SHARED, len(word) + 1):
            ids[word[:length]].append(index)
    beginnings = ([word[:n] for n in range(len(word), SHARED - 1, -1)] for word in new)
    return [next((ids[each] for each in its if each in ids), []) for its in beginnings]


def _extended(rows: Tensor, known: int, alike: Sequence[list[int]]) -> Tensor:
    """Rows of known and of new words, each the mean of those alike; a vector is the output bias."""
    mean = rows[len(SPECIAL) :].mean(dim=0)
    new = (rows[ids].mean(dim=0) if ids else mean for ids in alike)
    if known and rows.dim() == 1:
        new = (row + UNLIKELY for row in new)
    return torch.stack([*rows[: len(SPECIAL) + known], *new])
