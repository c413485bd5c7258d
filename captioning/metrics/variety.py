"""How many, how long and how varied captions are, whatever people wrote of the images."""

from collections.abc import Collection, Iterable, Sequence

from captioning.data.tokens import tokenize
from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Words

COUNTS = ("images", "distinct captions", "distinct words", "shortest", "longest")
"""The statistics that are whole numbers."""


def variety(
    candidates: Sequence[Words],
    training: Iterable[str] | None = None,
    vocabulary: Collection[str] | None = None,
) -> dict[str, float]:
    """Statistics of captions; lengths are in words, and `<unk>` is a word but no distinct one.

    Args:
        candidates: the words of at least one caption.
        training: the captions that the model was trained on, where they are known.
        vocabulary: the words that it could have said, where they are known.

    Returns:
        "images", "distinct captions" (those that differ in a word), "mean length", "shortest",
        "longest" and "distinct words"; with a vocabulary "share of vocabulary", how much of it
        the captions use; with training captions "share not in training", how many of the
        captions are none of them, word for word.
    """
    lengths = [len(words) for words in candidates]
    distinct = {tuple(words) for words in candidates}
    used = {word for words in distinct for word in words} - {SPECIAL[UNK]}
    statistics = {
        "images": float(len(candidates)),
        "mean length": sum(lengths) / len(lengths),
        "shortest": float(min(lengths)),
        "longest": float(max(lengths)),
        "distinct words": float(len(used)),
        "distinct captions": float(len(distinct)),
    }
    if vocabulary is not None:
        statistics["share of vocabulary"] = len(used.intersection(vocabulary)) / len(vocabulary)
    if training is not None:
        unseen = set(distinct)
        for caption in training:
            unseen.discard(tuple(tokenize(caption)))
        new = sum(tuple(words) in unseen for words in candidates)
        statistics["share not in training"] = new / len(candidates)
    return statistics
