"""Captions as words: how scorers receive them, and statistics of their length and variety."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from captioning.data.tokens import tokenize, tokens, words_of
from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Scorer, Scores, Words

COUNTS = ("images", "distinct captions", "distinct words", "shortest", "longest")
"""The statistics of `variety` that are whole numbers."""


def generated_tokens(caption: str) -> list[str]:
    """The tokens of a generated caption; `<unk>` is one token."""
    found = []
    for index, known in enumerate(caption.split(SPECIAL[UNK])):
        if index > 0:
            found.append(SPECIAL[UNK])
        found += tokens(known)
    return found


def generated_words(caption: str) -> list[str]:
    """The words of a generated caption; `<unk>` is one word."""
    return words_of(generated_tokens(caption))


@dataclass(frozen=True)
class OfTokens:
    """A scorer that receives tokens, in which `22 3/4` with a no-break space is one.

    The COCO evaluation splits tokenized captions at plain spaces for ROUGE-L, and also at no-break
    spaces for the other metrics.

    Attributes:
        scorer: receives tokens instead of words.
    """

    scorer: Scorer

    def __call__(
        self, candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
    ) -> Scores:
        """The scores of captions."""
        return self.scorer(candidates, references)


def scored(
    scorer: Scorer, candidates: Sequence[list[str]], references: Sequence[Sequence[list[str]]]
) -> Scores:
    """Score tokenized captions; scorers other than `OfTokens` receive words.

    Args:
        scorer: the metric.
        candidates: the tokens of one caption per image.
        references: for each image the tokens of its references.
    """
    if isinstance(scorer, OfTokens):
        return scorer(candidates, references)
    return scorer(
        [words_of(candidate) for candidate in candidates],
        [[words_of(reference) for reference in written] for written in references],
    )


def variety(
    candidates: Sequence[Words],
    training: Iterable[str] | None = None,
    vocabulary: Collection[str] | None = None,
) -> dict[str, float]:
    """Statistics of captions; lengths are in words, `<unk>` included.

    Args:
        candidates: the words of at least one caption.
        training: the captions that the model was trained on, if known.
        vocabulary: the model's words, if known.

    Returns:
        "images", "distinct captions", "mean length", "shortest", "longest" and "distinct words"
        (without `<unk>`); with a vocabulary "share of vocabulary", the share of its words that the
        captions use; with training captions "share not in training", the share of captions that
        differ from every one of them.
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
