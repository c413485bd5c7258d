"""A map by layer-wise relevance propagation through the decoder.

Shapes: B images, N captions per image, L regions, D annotation width, T words.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from captioning.maps.gradient_maps import at_annotations, gradient_times_input
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap
from captioning.search.search import NEVER

CONSTANTS: frozenset[Callable[..., Any]] = frozenset(
    {torch.sigmoid, torch.Tensor.sigmoid, torch.softmax, torch.Tensor.softmax, F.softmax}
)
"""Gates and attention weights."""

ACTIVATIONS: frozenset[Callable[..., Any]] = frozenset({torch.tanh, torch.Tensor.tanh})
"""Of ReLU, gradient times input is the rule already."""


class RelevanceMap(WordMap):
    """Where the word's logit comes from, by relevance propagation (Sun et al. 2020).

    A linear layer's output hands its relevance to its inputs in proportion to what they add to it
    (LRP-0, the epsilon rule without its epsilon). Gates and attention weights are constants: they
    scale relevance and take none (Arras et al. 2017). An activation hands on all that it gets. The
    map is the relevance of each annotation vector, its positive part.

    These rules are gradient x input of a network in which sigmoid and softmax have no gradient and
    tanh that of a line through zero (Ancona et al. 2018, proposition 1), so that no rule is written
    per layer. They are those of the paper's decoder; through other layers, such as a transformer's
    norms, goes the gradient as it is.
    """

    def __call__(self, reading: Reading) -> Maps:
        """The positive part of each annotation vector's relevance, as shares."""
        return at_annotations(reading, gradient_times_input, word_logits)


def word_logits(reading: Reading, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B N T"]:
    """The logit of each word, whose gradient times the annotation vectors is their relevance.

    Zero at PAD, and at words that no search generates.

    Args:
        reading: the captions.
        annotations: to read them with.
    """
    with _Rules():
        logits, _ = reading.decoder(annotations, reading.tokens[..., :-1])
    words = reading.tokens[..., 1:]
    unreachable = torch.isin(words, torch.tensor(NEVER, device=words.device))
    return logits.gather(-1, words[..., None])[..., 0].masked_fill(unreachable, 0.0)


class _Rules(TorchFunctionMode):
    """Within it, functions have the gradients of the rules; what they give is the same."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in CONSTANTS:
            return output.detach()
        if func in ACTIVATIONS:
            given = args[0]
            slope = torch.where(given == 0, 1.0, output / given)
            return given * slope.detach()
        return output
