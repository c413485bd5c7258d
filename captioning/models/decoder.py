"""The promise that every decoder keeps, so that training and search need to know no decoder.

Shapes: B images, N captions per image, r of these go on, L regions, D annotation width, T words, V
vocabulary.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.configurable import Configurable
from captioning.models.likelihood import cross_entropy
from captioning.models.rows import Word
from captioning.numbers import AnnotationWidth, VocabularySize

State = dict[str, Tensor]
"""What a decoder carries from word to word: tensors (B, N, ...), so that following a beam is one
gather along N."""


class Memory(NamedTuple):
    """What is computed once per image and shared by all its captions and words.

    Attributes:
        annotations: the annotation vectors that contexts are made of.
        keys: their projection for the attention.
        mask: True where a region may be attended; None where all may.
    """

    annotations: Float[Tensor, "B L D"]
    keys: Float[Tensor, "B L A"]
    mask: Bool[Tensor, "B L"] | None

    def kept(self, images: Int[Tensor, "b"]) -> "Memory":
        """The memory of some of the images."""
        mask = None if self.mask is None else self.mask[images]
        return Memory(self.annotations[images], self.keys[images], mask)


class Step(NamedTuple):
    """One word further.

    Attributes:
        logits: scores of every word of the vocabulary to come next, of the captions that go on.
        rows: which these are.
        weights: attention over regions while the scores were made.
        state: the state after the step.
    """

    logits: Float[Tensor, "r V"]
    rows: Word
    weights: Float[Tensor, "B N L"]
    state: State

    @property
    def all_logits(self) -> Float[Tensor, "B N V"]:
        """The scores of all captions; zero for those that have ended."""
        return self.rows.by_image(self.logits)


class Decoder(Configurable, nn.Module):
    """Writes captions word by word, looking at annotation vectors.

    Args:
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
    """

    def __init__(self, annotation_dim: AnnotationWidth, vocab_size: VocabularySize) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim
        self.vocab_size = vocab_size

    @abstractmethod
    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Everything that is computed once per image."""

    @abstractmethod
    def start(self, memory: Memory, n: int) -> State:
        """The state of N captions per image before their first word."""

    def prepared(self) -> AbstractContextManager[None]:
        """Within it, steps without gradients may be faster, and parameters must not change."""
        return nullcontext()

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next.

        What follows PAD, where a caption has ended, means nothing; `Word.going_on` leaves it out.
        """

    def forward(
        self,
        annotations: Float[Tensor, "B L D"],
        tokens: Int[Tensor, "B N T"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T R"]]:
        """Teacher forcing: logits for the word after each of `tokens`, and attention weights.

        Weights are over the L regions, but for an ensemble of different grids over the R of the
        finest one. What stands at PAD means nothing.
        """
        return self.read(self.remember(annotations, mask), tokens)

    def read(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T R"]]:
        """Teacher forcing from what is remembered of the images; otherwise as `forward`.

        A decoder may override this with something faster that gives the same.
        """
        state = self.start(memory, tokens.shape[1])
        logits, weights = [], []
        for words in tokens.unbind(dim=2):
            step = self.step(words, state, memory)
            state = step.state
            logits.append(step.all_logits)
            weights.append(step.weights)
        return torch.stack(logits, dim=2), torch.stack(weights, dim=2)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        importance: Float[Tensor, "B N"] | None = None,
        never: Sequence[int] = (),
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 L"]]:
        """What training minimises, summed over all words, in nats; and attention weights.

        A decoder may override this with something that needs less than all logits at once.

        Args:
            memory: of the images.
            tokens: the captions from BOS to EOS; PAD does not count.
            label_smoothing: share of a word's probability spread over the vocabulary.
            importance: how much each caption counts, of either sign; one if none.
            never: words without probability; not together with label smoothing.
        """
        logits, weights = self.read(memory, tokens[..., :-1])
        loss = cross_entropy(logits, tokens[..., 1:], label_smoothing, importance, never)
        return loss, weights
