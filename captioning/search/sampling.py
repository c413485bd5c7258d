"""Words drawn by their probability.

Shapes: B images, N captions per image, T words, V vocabulary.
"""

from jaxtyping import Float, Int
from torch import Tensor

from captioning.numbers import MaxLength, MinLength, NgramLength, Samples, Temperature, TopK, TopP
from captioning.search.greedy import IndependentSearch


class Sampling(IndependentSearch):
    """Words drawn by their probability, so that an image gets different captions.

    Draws from torch's generator: `torch.manual_seed` makes the captions repeatable.

    Args:
        captions: N, how many captions to draw for each image.
        temperature: below one sharpens the distribution, above one flattens it.
        top_k: draw from the k most probable words only; 0 for all.
        top_p: draw from the fewest words that together have this probability (nucleus sampling,
            Holtzman et al. 2020); 1 for all.
        max_length: the most words of a caption.
        min_length: the fewest words of a caption.
        no_repeat_ngram: n of the n-grams that may not occur twice in a caption; 0 allows all.
    """

    def __init__(
        self,
        captions: Samples = 1,
        temperature: Temperature = 1.0,
        top_k: TopK = 0,
        top_p: TopP = 1.0,
        max_length: MaxLength = 20,
        min_length: MinLength = 1,
        no_repeat_ngram: NgramLength = 0,
    ) -> None:
        super().__init__(max_length, min_length, no_repeat_ngram, length_penalty=1.0)
        self.captions = captions
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p

    def choose(self, log_probs: Float[Tensor, "*B V"]) -> Int[Tensor, "*B"]:
        """A word drawn for each caption."""
        flat = log_probs.flatten(0, -2)
        probabilities = (flat / self.temperature).softmax(dim=-1)
        if not self.top_k and self.top_p == 1:
            return probabilities.multinomial(1).view(log_probs.shape[:-1])
        ranked, words = probabilities.sort(dim=-1, descending=True)
        before = ranked.cumsum(dim=-1) - ranked  # mass of all words ranked above
        ranked = ranked.masked_fill(before >= self.top_p, 0.0)
        if self.top_k:
            ranked[:, self.top_k :] = 0.0
        return words.gather(1, ranked.multinomial(1)).view(log_probs.shape[:-1])
