"""Starts a training from another model, whose words may be fewer."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.captioner import Captioner, load
from captioning.captioner.checkpoint import read
from captioning.data.tokenizers import TokenizerName
from captioning.data.vocabulary import SPECIAL
from captioning.errors import InputError
from captioning.models import CNNEncoder
from captioning.progress_bar import say
from captioning.shelf import path_of

SHARED = 4
"""Letters at the beginning that words must have in common to count as alike."""


def words_of(initial: str | None, tokenizer: TokenizerName = "ptb") -> tuple[str, ...]:
    """The words of the model that a training starts from; none of another tokenizer's."""
    config = {} if initial is None else read(path_of(initial))[0]
    same = config.get("tokenizer", "ptb") == tokenizer
    return tuple(config.get("vocabulary", ())) if same else ()


def start_from(model: str, captioner: Captioner) -> None:
    """Copy the parameters of a model into a captioner, whose vocabulary may have more words.

    The rows of a new word start from the mean over the known words that begin like it, or over all.
    Words that another tokenizer splits are all new.

    Args:
        model: its file, or the name of a shipped one.
        captioner: its vocabulary begins with the model's words, if the tokenizer is the same.

    Raises:
        InputError: no such model, or its parts or words are others.
    """
    initial = load(model, kernels=False)
    known, words = initial.vocabulary.words, captioner.vocabulary.words
    if initial.vocabulary.tokenizer != captioner.vocabulary.tokenizer:
        known = ()
    if words[: len(known)] != known:
        raise InputError(f"{model}: its words are not the first ones of the vocabulary")
    theirs, ours = (each.model.state_dict() for each in (initial, captioner))
    alike = _alike(words[len(known) :], known)
    for name, value in ours.items():
        if (
            name in theirs
            and value.shape != theirs[name].shape
            and len(value) == len(captioner.vocabulary)
        ):
            theirs[name] = _extended(theirs[name], len(known), alike)
    shapes = [{(name, value.shape) for name, value in s.items()} for s in (theirs, ours)]
    if shapes[0] != shapes[1]:
        name, _ = min(shapes[0] ^ shapes[1])
        raise InputError(
            f"{model}: differs in {name}; configure model.{name.partition('.')[0]} as it was "
            "trained"
        )
    captioner.model.load_state_dict(theirs)
    if isinstance(captioner.model.encoder, CNNEncoder):
        captioner.model.encoder.keeps_statistics = True  # as of pretrained weights
    if alike:
        some = sum(map(bool, alike))
        say(
            f"{len(known):,} words of {Path(model).name}, and {len(alike):,} new ones, of which "
            f"{some:,} begin like known ones"
        )


def _alike(new: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """For each new word the ids of the known words that begin most like it; empty for none."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for index, word in enumerate(known, len(SPECIAL)):
        for length in range(SHARED, len(word) + 1):
            ids[word[:length]].append(index)
    beginnings = ([word[:n] for n in range(len(word), SHARED - 1, -1)] for word in new)
    return [next((ids[each] for each in its if each in ids), []) for its in beginnings]


def _extended(rows: Tensor, known: int, alike: Sequence[list[int]]) -> Tensor:
    """The rows of known words, and one for each new word: the mean of those alike, or of all."""
    mean = rows[len(SPECIAL) :].mean(dim=0)
    new = (rows[ids].mean(dim=0) if ids else mean for ids in alike)
    return torch.stack([*rows[: len(SPECIAL) + known], *new])
