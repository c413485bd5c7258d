"""The words that nearly stood in the place of those that a search chose.

Shapes: B images, N captions per image, T words, k alternatives, L regions, D annotation width, V
vocabulary.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.models.decoder import Decoder
from captioning.search.search import NEVER, generable_log_probs


class Alternatives(NamedTuple):
    """The most probable other tokens in the place of each token, the best first.

    Attributes:
        tokens: the other tokens; what stands at PAD means nothing.
        probabilities: of each of these given the photo and the tokens before it.
    """

    tokens: Int[Tensor, "B N T k"]
    probabilities: Float[Tensor, "B N T k"]


def find_alternatives(
    decoder: Decoder, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N T"], k: int
) -> Alternatives:
    """The k most probable other tokens in the place of each token of finished captions.

    The captions are read once more, all words together, so that a search for which nobody asks
    this pays nothing for it. Probabilities are a search's: shares among the tokens that can ever
    be generated.

    Args:
        decoder: what the captions were searched with.
        annotations: the annotation vectors of the images.
        tokens: the captions as a search gives them: words and EOS, PAD after it.
        k: how many; fewer if the vocabulary has no more.
    """
    before = F.pad(tokens, (1, -1), value=BOS)
    logits, _ = decoder(annotations, before)
    others = generable_log_probs(logits).scatter_(-1, tokens[..., None], float("-inf"))
    log_probs, words = others.topk(min(k, others.shape[-1] - len(NEVER) - 1), dim=-1)
    return Alternatives(words, log_probs.exp())
