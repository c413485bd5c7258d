"""Weights of captions by their agreement with the photo's other captions.

Shapes: B images, N captions per image, T words.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.records import Record
from captioning.data.vocabulary import EOS, SPECIAL, Vocabulary
from captioning.metrics.cider import DocumentFrequencies
from captioning.metrics.reward import Reward
from captioning.metrics.scores import Words


class Consensus:
    """Weights of captions by CIDEr-D against the other captions of their photo.

    People differ in what they say about a photo. A model that may say one sentence does best to say
    what most people would (Phan et al. 2017, "Consensus-based Sequence Training for Video
    Captioning"). The end of a caption counts as a word.

    Args:
        records: the training captions, which define how rare an n-gram is.
        vocabulary: of the captions; unknown words match nothing.
    """

    def __init__(self, records: Sequence[Record], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        captions = [
            [self._words(vocabulary.encode(caption)) for caption in record.captions]
            for record in records
        ]
        self._score = Reward(DocumentFrequencies.of(captions))

    def __call__(self, tokens: Int[Tensor, "B N T"]) -> Float[Tensor, "B N"]:
        """Each caption's score divided by the mean over its photo; one if that mean is zero.

        The weights of a photo's captions have the mean one. Rows of PAD get zero.

        Args:
            tokens: the captions from the first word, or BOS, to EOS; PAD after it.
        """
        real = tokens.any(dim=2)
        captions = [[self._words(row) for row in rows if any(row)] for rows in tokens.tolist()]
        scores = self._score(
            [[caption] for its in captions for caption in its],
            [its[:n] + its[n + 1 :] or its for its in captions for n in range(len(its))],
        )
        of_each = torch.zeros(real.shape, device=tokens.device)
        of_each[real] = torch.from_numpy(scores[:, 0]).to(of_each)
        mean = of_each.sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        return torch.where(mean > 0, of_each / mean, real.to(of_each))

    def _words(self, row: Sequence[int]) -> Words:
        return (*self.vocabulary.decode(row), SPECIAL[EOS])
