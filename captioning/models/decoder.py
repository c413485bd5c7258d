"""The promise that every decoder keeps, so that training and search need to know no decoder.

Shapes: B images, N captions per image, L regions, D annotation width, T words, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.errors import InputError
from captioning.models.losses import cross_entropy
from captioning.models.reporting import Reporting
from captioning.numbers import AnnotationWidth, VocabularySize

State = dict[str, Tensor]
"""What a decoder carries from word to word: tensors (B, N, ...), so that following a beam is one
gather along N. Only its decoder knows what they mean."""

AnyMemory = TypeVar("AnyMemory", bound="Memory")


@dataclass(frozen=True)
class Memory:
    """What is computed once per image and shared by all its captions and words.

    A decoder that remembers more adds fields: tensors with the leading axis B, other memories, or
    tuples of either.

    Attributes:
        annotations: the annotation vectors that contexts are made of.
        mask: True where a region may be attended; None where all may.
    """

    annotations: Float[Tensor, "B L D"]
    mask: Bool[Tensor, "B L"] | None

    @property
    def images(self) -> int:
        """B."""
        return len(self.annotations)

    def keep(self: AnyMemory, images: Int[Tensor, "b"]) -> AnyMemory:
        """The memory of some of the images."""
        return replace(
            self, **{field.name: _kept(getattr(self, field.name), images) for field in fields(self)}
        )


def _kept(part: Any, images: Tensor) -> Any:
    if isinstance(part, Memory):
        return part.keep(images)
    if isinstance(part, tuple):
        return tuple(_kept(each, images) for each in part)
    return None if part is None else part[images]


@dataclass
class Step:
    """What a decoder knows after one more word.

    Attributes:
        logits: scores of every word of the vocabulary to come next.
        weights: attention over regions while these scores were made.
        state: the state after the step.
    """

    logits: Float[Tensor, "B N V"]
    weights: Float[Tensor, "B N L"]
    state: State


class Decoder(Reporting, Configurable, nn.Module):
    """Writes captions word by word, looking at annotation vectors.

    A subclass gives `remember`, `start` and `step`; all else follows from these.

    Args:
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
    """

    def __init__(self, annotation_dim: AnnotationWidth, vocab_size: VocabularySize) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim
        self.vocab_size = vocab_size

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Everything that is computed once per image."""
        return Memory(annotations, mask)

    @abstractmethod
    def start(self, memory: Memory, n: int) -> State:
        """The state of N captions per image before their first word."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next.

        A caption that has ended reads PAD; what the step gives for it means nothing.
        """

    def forward(
        self,
        annotations: Float[Tensor, "B L D"],
        tokens: Int[Tensor, "B N T"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T R"]]:
        """Teacher forcing: logits for the word after each of `tokens`, and attention weights.

        The weights are over the L regions; those of an ensemble of different grids are over the R
        regions of the finest one. What stands at PAD means nothing.
        """
        return self.teacher_forcing(self.remember(annotations, mask), tokens)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T R"]]:
        """The same as `forward` for images that are in memory already."""
        state = self.start(memory, tokens.shape[1])
        logits, weights = [], []
        for words in tokens.unbind(dim=2):
            step = self.step(words, state, memory)
            state = step.state
            logits.append(step.logits)
            weights.append(step.weights)
        return torch.stack(logits, dim=2), torch.stack(weights, dim=2)

    @property
    def has_evidence(self) -> bool:
        """Whether it has `evidence` and `context_evidence`."""
        return False

    def evidence(
        self,
        memory: Memory,
        words: Int[Tensor, "B N T"],
        expected: Float[Tensor, "B N T V"] | None = None,
    ) -> Float[Tensor, "B N T L"]:
        """What each region's vector, alone, adds to the score of a word, in nats.

        Optional: most decoders mix the regions before they score a word, and have no such part.

        Args:
            memory: of the images.
            words: any words, whatever was said before.
            expected: the probabilities of what could stand in the place of each word. Evidence is
                against their mean; against the mean of all words alike if none.

        Raises:
            InputError: this decoder has none.
        """
        raise InputError("this decoder scores no word by a region alone; choose another map")

    def context_evidence(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        expected: Float[Tensor, "B N T V"],
        earlier: float = 1.0,
    ) -> Float[Tensor, "B N T L"]:
        """What more of each region's vector in the contexts up to a word adds to its score.

        In nats, to first order: gradient times input (Shrikumar et al. 2016) at the contexts, with
        attention weights as given. As optional as `evidence`, which does not depend on what was
        said before.

        Args:
            memory: of the images.
            tokens: the captions from BOS to EOS; T = S - 1.
            expected: the probabilities of what could stand in the place of each word.
            earlier: what the contexts of earlier words count; that of the word's own step is one.

        Raises:
            InputError: this decoder has none.
        """
        raise InputError("this decoder scores no word by a region alone; choose another map")

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        importance: Float[Tensor, "B N"] | None = None,
        never: Sequence[int] = (),
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 R"]]:
        """What training minimises, summed over all words, in nats; and attention weights.

        Args:
            memory: of the images.
            tokens: the captions from BOS to EOS; PAD does not count.
            label_smoothing: share of a word's probability spread over the vocabulary.
            importance: the weight of each caption, of either sign; one if none.
            never: words without probability; not together with label smoothing.
        """
        logits, weights = self.teacher_forcing(memory, tokens[..., :-1])
        loss = cross_entropy(logits, tokens[..., 1:], label_smoothing, importance, never)
        return loss, weights
