"""Searches in which every caption is extended on its own: greedy search and sampling.

Shapes: B images, N captions per image, T words, V vocabulary.
"""

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.models.decoder import Memory, State, Step
from captioning.numbers import MaxLength, MinLength, NgramLength
from captioning.search.hypotheses import Hypotheses
from captioning.search.search import Search


class IndependentSearch(Search):
    """Extends each caption by one word at a time, whatever the others do."""

    captions: int

    @abstractmethod
    def choose(self, log_probs: Float[Tensor, "*B V"]) -> Int[Tensor, "*B"]:
        """The next word of every caption by the log probabilities of all words."""

    def next_words(
        self, step: Step, hypotheses: Hypotheses
    ) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B N"]]:
        """The next word of every caption, and its log probability."""
        log_probs = self.log_probs(step.logits, hypotheses.tokens)
        words = self.choose(log_probs)
        return words, log_probs.gather(2, words[:, :, None]).squeeze(2)

    def begin(self, memory: Memory) -> Hypotheses:
        """As many empty captions as are wanted."""
        return Hypotheses.empty(memory, self.captions)

    def extend(self, hypotheses: Hypotheses, step: Step) -> tuple[Hypotheses, State]:
        """Every caption with its next word; PAD where it has ended."""
        words, log_probs = self.next_words(step, hypotheses)
        ended = hypotheses.finished
        return (
            hypotheses.extend(
                words.masked_fill(ended, PAD), log_probs.masked_fill(ended, 0.0), step.weights
            ),
            step.state,
        )


class Greedy(IndependentSearch):
    """Always the most probable next word.

    Args:
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
    """

    captions = 1

    def __init__(
        self,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)

    def choose(self, log_probs: Float[Tensor, "*B V"]) -> Int[Tensor, "*B"]:
        """The most probable word."""
        return log_probs.max(dim=-1).indices  # on CPUs in half the time of `argmax`
