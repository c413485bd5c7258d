"""Runners-up: the most probable words that a search did not choose.

Shapes: B images, N captions per image, T words, k alternatives, L regions, D annotation width, V
vocabulary.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.models.decoder import Decoder
from captioning.models.model import Model
from captioning.search.search import NEVER, generable_log_probs


class Alternatives(NamedTuple):
    """The most probable other tokens in place of each token, best first; undefined at PAD."""

    tokens: Int[Tensor, "B N T k"]
    probabilities: Float[Tensor, "B N T k"]


def find_alternatives(
    model: Model | Decoder,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N T"],
    k: int,
    temperature: float = 1.0,
) -> Alternatives:
    """The k most probable other tokens in the place of each token of finished captions.

    Reads the captions again by teacher forcing, so a search without runners-up pays nothing for
    them. Probabilities are normalised as in a search, over the tokens that it can generate.

    Args:
        model: the model that wrote the captions, or a decoder.
        annotations: what it takes.
        tokens: the captions as a search returns them.
        k: number of alternatives; fewer if the vocabulary is smaller.
        temperature: what logits are divided by before the softmax.
    """
    before = F.pad(tokens, (1, -1), value=BOS)
    logits, _ = model(annotations, before)
    others = generable_log_probs(logits / temperature).scatter_(
        -1, tokens[..., None], float("-inf")
    )
    log_probs, words = others.topk(min(k, others.shape[-1] - len(NEVER) - 1), dim=-1)
    return Alternatives(words, log_probs.exp())
