"""Runners-up: the most probable words that a search did not choose.

Shapes: B images, N captions per image, T words, k alternatives, V vocabulary.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from captioning.search.search import NEVER, generable_log_probs


class Alternatives(NamedTuple):
    """The most probable other tokens in place of each token, best first; undefined at PAD."""

    tokens: Int[Tensor, "B N T k"]
    probabilities: Float[Tensor, "B N T k"]


def find_alternatives(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"], k: int
) -> Alternatives:
    """The k most probable other tokens in the place of each token of finished captions.

    Probabilities are normalised as in a search, over the tokens that it can generate.

    Args:
        logits: before each token.
        tokens: the captions as a search returns them.
        k: number of alternatives; fewer if the vocabulary is smaller.
    """
    others = generable_log_probs(logits).scatter_(-1, tokens[..., None], float("-inf"))
    log_probs, words = others.topk(min(k, others.shape[-1] - len(NEVER) - 1), dim=-1)
    return Alternatives(words, log_probs.exp())
