"""The words that nearly stood in the place of those that a search chose.

Shapes: B images, N captions per image, T words, k runners-up, L regions, D annotation width, V
vocabulary.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.vocabulary import BOS
from captioning.models.decoder import Decoder
from captioning.models.rows import Word
from captioning.search.best import best
from captioning.search.search import NEVER


class RunnersUp(NamedTuple):
    """The most probable other tokens in the place of each token, the best first.

    Attributes:
        tokens: the other tokens; what stands at PAD means nothing.
        probabilities: of each of these given the photo and the tokens before it.
    """

    tokens: Int[Tensor, "B N T k"]
    probabilities: Float[Tensor, "B N T k"]


def find_runners_up(
    decoder: Decoder, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N T"], k: int
) -> RunnersUp:
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
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logits = logits.index_fill(-1, torch.tensor(NEVER, device=logits.device), float("-inf"))
    normaliser = logits.logsumexp(dim=-1, keepdim=True)
    others = logits.scatter(-1, tokens[..., None], float("-inf"))
    k = min(k, others.shape[-1] - len(NEVER) - 1)
    rows = tokens.reshape(-1, 1)
    found = best(others.flatten(0, 2), Word.of_all(rows), others.new_zeros(rows.shape), k)
    shape = (*tokens.shape, k)
    return RunnersUp(found.words.view(shape), (found.scores.view(shape) - normaliser).exp())
