"""Starts a training from another model, whose vocabulary may have fewer words.

That model's captioner is called the start; a configuration names its file as `model.initial`.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.checkpoint import fitted_tensors
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.models import CNNEncoder
from captioning.progress_bar import say

PREFIX_LENGTH = 4
"""Length of the prefix that two words must share to count as similar."""

UNLIKELY_LOG_PROB = math.log(1 / 100)
"""Added to the output bias of new words, which otherwise compete with the similar words."""


def start_words(
    start: Captioner | None, tokenizer: TokenizerName, keep_words: bool
) -> tuple[str, ...]:
    """The words of the start that a training's vocabulary begins with.

    There are none without a start, if `keep_words` is off, or if the tokenizer differs.
    """
    if start is None or not keep_words or start.vocabulary.tokenizer != tokenizer:
        return ()
    return tuple(start.vocabulary.words)


def start_from(start: Captioner, captioner: Captioner, model_name: str) -> None:
    """Copy the parameters of a start into a captioner, whose vocabulary may have more words.

    The rows of a new word are the mean over the start's similar words, or over all of its words.
    The output bias of a new word is lower, so that the captioner begins with the start's captions
    (`UNLIKELY_LOG_PROB`). If the language or the tokenizer differs, all words are new, and equally
    likely.
    The vocabulary also takes over the start's repeatable words, spellings and ranks.

    Args:
        start: the captioner to start from; unchanged.
        captioner: the captioner to train.
        model_name: the name or the file of the start, for messages.

    Raises:
        InputError: the parts of the two models differ, or the vocabulary does not begin with the
            start's words.
    """
    parameters, similar_ids = fitted_parameters(start, captioner, model_name)
    captioner.model.load_state_dict(parameters)
    captioner.model.encoder.offsets.update(start.model.encoder.offsets)
    new_count = len(similar_ids)
    shared_count = len(captioner.vocabulary.words) - new_count
    captioner.vocabulary = _merged(start.vocabulary, captioner.vocabulary, shared_count)
    if isinstance(captioner.model.encoder, CNNEncoder):
        captioner.model.encoder.keep_statistics()  # as of pretrained weights
    if new_count:
        similar_count = sum(map(bool, similar_ids))
        say(
            f"{shared_count:,} words of {Path(model_name).name}, and {new_count:,} new ones, of "
            f"which {similar_count:,} begin like known ones"
        )


def interpolate(
    start_parameters: Mapping[str, Tensor], trained: Captioner, start_weight: float
) -> Captioner:
    """A captioner whose parameters are interpolated between those of a start and of a trained one.

    On few photos, parameters between the two often caption better than either (Wortsman et al.
    2022, "Robust fine-tuning of zero-shot models", eq. 1).

    Args:
        start_parameters: the start's, as `fitted_parameters` gives them for the trained captioner.
        trained: the trained captioner; unchanged.
        start_weight: weight of the start's parameters, from 0 to 1.
    """
    captioner = Captioner.from_config(trained.config)
    captioner.model.encoder.offsets.clear()
    parameters = trained.model.state_dict()
    for name, parameter in parameters.items():
        if parameter.is_floating_point():
            parameters[name] = parameter.lerp(start_parameters[name], start_weight)
    captioner.model.load_state_dict(parameters)
    return captioner.freeze()


def _merged(start: Vocabulary, vocabulary: Vocabulary, shared_count: int) -> Vocabulary:
    """The vocabulary with what the start's vocabulary knows of its words.

    The first `shared_count` words are the start's. Spellings and joints of the new captions come
    before the start's, ranks after.
    """
    repeatable, immediate_repeats = vocabulary.repeatable, vocabulary.immediate_repeats
    if start.repeatable is not None and repeatable is not None:
        repeatable = {*repeatable, *start.repeatable}
    if start.immediate_repeats is not None and immediate_repeats is not None:
        immediate_repeats = {*immediate_repeats, *start.immediate_repeats}
    shared_words = set(vocabulary.words[:shared_count])
    shared_ranks = {word: rank for word, rank in start.ranks.items() if word in shared_words}
    return Vocabulary(
        vocabulary.words,
        vocabulary.tokenizer,
        repeatable,
        {**start.spellings, **vocabulary.spellings},
        {**vocabulary.ranks, **shared_ranks},
        {**start.joints, **vocabulary.joints} if shared_words else vocabulary.joints,
        immediate_repeats,
    )


class FittedParameters(NamedTuple):
    """The start's parameters in the shapes of another captioner's."""

    tensors: dict[str, Tensor]
    similar_ids: list[list[int]]  # for each new word, of the similar words


def fitted_parameters(start: Captioner, captioner: Captioner, model_name: str) -> FittedParameters:
    """Resize the start's parameters to the captioner's vocabulary.

    Also return the ids of words similar to each new word. The arguments are those of `start_from`.
    """
    words, shared_words = captioner.vocabulary.words, start.vocabulary.words
    has_same_tokenizer = start.vocabulary.tokenizer == captioner.vocabulary.tokenizer
    if not has_same_tokenizer or not set(words).issuperset(shared_words):
        shared_words = ()
    if words[: len(shared_words)] != shared_words:
        raise InputError(f"{model_name}: its words are not the first ones of the vocabulary")
    similar_ids = _similar_ids(words[len(shared_words) :], shared_words)
    parameters, start_parameters = captioner.model.state_dict(), start.model.state_dict()
    for name, parameter in parameters.items():
        start_parameter = start_parameters.get(name, parameter)
        counts = [len(tensor) if tensor.dim() else 0 for tensor in (parameter, start_parameter)]
        has_row_per_word = counts == [len(captioner.vocabulary), len(start.vocabulary)]
        if has_row_per_word and similar_ids:
            start_parameters[name] = _extended(start_parameter, len(shared_words), similar_ids)
    try:
        return FittedParameters(fitted_tensors(parameters, start_parameters), similar_ids)
    except InputError as error:
        raise InputError(f"{model_name}: {error}") from None


def _similar_ids(new_words: Sequence[str], words: Sequence[str]) -> list[list[int]]:
    """For each new word the ids of the words that share its longest prefix; empty for none."""
    ids_by_prefix: defaultdict[str, list[int]] = defaultdict(list)
    for index, word in enumerate(words, len(SPECIAL)):
        for length in range(PREFIX_LENGTH, len(word) + 1):
            ids_by_prefix[word[:length]].append(index)

    def similar_ids(word: str) -> list[int]:
        for length in range(len(word), PREFIX_LENGTH - 1, -1):
            if word[:length] in ids_by_prefix:
                return ids_by_prefix[word[:length]]
        return []

    return [similar_ids(word) for word in new_words]


def _extended(rows: Tensor, word_count: int, similar_ids: Sequence[list[int]]) -> Tensor:
    """Rows of words, followed by one row for each new word: the mean over its similar words.

    A vector is the output bias.
    """
    mean = rows[len(SPECIAL) :].mean(dim=0)
    new_rows = [rows[ids].mean(dim=0) if ids else mean for ids in similar_ids]
    if word_count and rows.dim() == 1:
        new_rows = [row + UNLIKELY_LOG_PROB for row in new_rows]
    return torch.stack([*rows[: len(SPECIAL) + word_count], *new_rows])
