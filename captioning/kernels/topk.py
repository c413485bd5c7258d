"""Top-k over large vocabularies, several times faster than `torch.topk`.

Equals `captioning.search.beam.topk_continuations`. The k best words of all captions of an image lie
in the k blocks of words with the largest maxima.

Shapes: B images, N captions per image, r active rows, V vocabulary, k best words.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.kernels.active_rows import ActiveRows
from captioning.search.beam import Continuations

BLOCK = 128
"""Words in a block."""


def topk_continuations(
    scores: Float[Tensor, "r V"], rows: ActiveRows, totals: Float[Tensor, "B N"], k: int
) -> Continuations:
    """The k continuations of each image's captions with the largest sums of total and score.

    Args:
        scores: scores of every next word, for the active captions.
        rows: the rows of the active captions.
        totals: scores of the captions so far; minus infinity for ended captions.
        k: number of continuations, at most N V.
    """
    vocabulary, device = scores.shape[1], scores.device
    in_blocks = vocabulary - vocabulary % BLOCK
    maxima = scores[:, :in_blocks].unflatten(1, (-1, BLOCK)).amax(2)
    if in_blocks < vocabulary:
        maxima = torch.cat([maxima, scores[:, in_blocks:].amax(1, keepdim=True)], dim=1)
    count = maxima.shape[1]
    maxima = (rows.by_image(maxima) + totals[:, :, None]).flatten(1)
    places = maxima.topk(min(k, maxima.shape[1])).indices
    captions, blocks = places // count, places % count

    words = blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)
    behind = words >= vocabulary
    words = words.clamp_(max=vocabulary - 1)
    numbers = rows.by_image(torch.arange(len(scores), device=device)[:, None]).flatten(1)
    starts = numbers.gather(1, captions)[:, :, None] * vocabulary
    found = scores.take(starts + words).masked_fill_(behind, float("-inf"))
    sums = found + totals.gather(1, captions)[:, :, None]
    sums, places = sums.flatten(1).topk(k)
    return Continuations(
        sums,
        found.flatten(1).gather(1, places),
        captions.gather(1, places // BLOCK),
        words.flatten(1).gather(1, places),
    )
