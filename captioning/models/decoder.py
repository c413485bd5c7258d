"""The interface of a decoder, so that training and search work with any of them.

Shapes: B images, N captions per image, L regions, D annotation width, T words, V vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.configurable import Configurable

State = dict[str, Tensor]
"""The recurrent state of a decoder: tensors (B, N, ...), so that following a beam is one gather
along N. Only the decoder itself interprets them."""


@dataclass(frozen=True)
class Memory:
    """Tensors computed once per image and shared by all its captions and words.

    A subclass may add fields: tensors with the leading axis B, other memories, or tuples of either.

    Attributes:
        annotations: the annotation vectors.
        mask: True for regions that may be attended, at least one per image; None for all.
    """

    annotations: Float[Tensor, "B L D"]
    mask: Bool[Tensor, "B L"] | None


@dataclass
class Step:
    """The result of reading one word.

    Attributes:
        logits: scores of the next word over the vocabulary.
        weights: attention weights with which these scores were computed.
        state: the state after the step.
    """

    logits: Float[Tensor, "B N V"]
    weights: Float[Tensor, "B N L"]
    state: State


class Decoder(Configurable, nn.Module):
    """Writes captions word by word while attending to annotation vectors.

    A subclass defines `start` and `step`, and `remember` if it computes more once per image.

    Args:
        annotation_dim: D.
        vocab_size: V, special tokens included.
    """

    def __init__(self, annotation_dim: int, vocab_size: int) -> None:
        super().__init__()
        self.annotation_dim = annotation_dim
        self.vocab_size = vocab_size

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Compute the memory of images, once per image.

        Args:
            annotations: the vectors to attend over: the output of the model's adapter.
            mask: True for regions that may be attended; None for all.
        """
        return Memory(annotations, mask)

    @abstractmethod
    def start(self, memory: Memory, n: int) -> State:
        """The state of N captions per image before their first word."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next.

        A caption that has ended reads PAD; its results are ignored.
        """

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Logits for the word after each of `tokens`, and attention weights; undefined at PAD."""
        state, steps = self.start(memory, tokens.shape[1]), []
        for words in tokens.unbind(dim=2):
            steps.append(self.step(words, state, memory))
            state = steps[-1].state
        logits = torch.stack([step.logits for step in steps], dim=2)
        return logits, torch.stack([step.weights for step in steps], dim=2)

    def forward(
        self,
        annotations: Float[Tensor, "B L D"],
        tokens: Int[Tensor, "B N T"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """`remember`, then `teacher_forcing`."""
        return self.teacher_forcing(self.remember(annotations, mask), tokens)
