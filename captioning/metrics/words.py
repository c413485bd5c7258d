"""The words of captions as scorers get them."""

from collections.abc import Sequence
from dataclasses import dataclass

from captioning.data.tokens import tokens, words_of
from captioning.data.vocabulary import SPECIAL, UNK
from captioning.metrics.scores import Scorer, Scores


def generated_tokens(caption: str) -> list[str]:
    """The tokens of a generated caption, in which `<unk>` is one word and not three."""
    found = []
    for index, known in enumerate(caption.split(SPECIAL[UNK])):
        if index > 0:
            found.append(SPECIAL[UNK])
        found += tokens(known)
    return found


def generated_words(caption: str) -> list[str]:
    """The words of a generated caption, in which `<unk>` is one word and not three."""
    return words_of(generated_tokens(caption))


@dataclass(frozen=True)
class OfTokens:
    """A scorer that takes `22 3/4` for one word, since that is one token.

    The COCO evaluation splits a tokenized caption at plain spaces for ROUGE-L, but at no-break
    spaces too for the other scores.

    Attributes:
        scorer: is called with tokens in place of words.
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
    """What a scorer gives captions; scorers other than `OfTokens` get the words of the tokens.

    Args:
        scorer: of one caption per image.
        candidates: the tokens of one caption per image.
        references: for each image the tokens of its references.
    """
    if isinstance(scorer, OfTokens):
        return scorer(candidates, references)
    return scorer(
        [words_of(candidate) for candidate in candidates],
        [[words_of(reference) for reference in written] for written in references],
    )
