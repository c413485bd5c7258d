"""The words of a vocabulary that name classes of the encoder's own classifier.

Shapes: B images, L regions, D annotation width, W words that name classes, P pairs of a word and
a class that it names.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.tokens import plurals
from captioning.data.vocabulary import Vocabulary
from captioning.models.backbones import Classes


class ClassWords:
    """The words that name classes, and the classifier's score of each region for them.

    The last word of a name stands for the class, in singular and plural: retriever and retrievers
    for golden retriever. A word of several classes has the score of the best one. A few words mean
    something else in captions (woods, for hen-of-the-woods); they are frequent, so the captions
    outweigh the classes.

    Args:
        classes: of the encoder.
        vocabulary: of the captions.
        device: of the annotation vectors.

    Attributes:
        words: (W) ids of the words that name classes.
    """

    words: Int[Tensor, " W"]

    def __init__(self, classes: Classes, vocabulary: Vocabulary, device: torch.device) -> None:
        ids = {word: vocabulary.ids([word])[1] for word in vocabulary.words}
        words, rows = [], []
        for index, named in enumerate(classes.names):
            for last in {name.split()[-1] for name in named}:
                for word in {last, *plurals(last)} & ids.keys():
                    words.append(ids[word])
                    rows.append(index)
        of_pairs = torch.tensor(words, dtype=torch.long, device=device)
        self.words, self._places = of_pairs.unique(return_inverse=True)
        self._weight, self._bias = classes.weight[rows].to(device), classes.bias[rows].to(device)

    def shown(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B W L"]:
        """The score of each region for each word, in nats: the best of its classes."""
        scores = F.linear(annotations.to(self._weight.dtype), self._weight, self._bias)
        of_pairs = scores.transpose(1, 2)  # (B, P, L)
        places = self._places[:, None].expand_as(of_pairs)
        least = of_pairs.new_full((len(scores), len(self.words), scores.shape[1]), -torch.inf)
        return least.scatter_reduce(1, places, of_pairs, "amax")
