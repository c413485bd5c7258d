"""The captions of a running search.

Shapes: B images, N captions per image, L regions, t words so far.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models.decoder import Memory


@dataclass(frozen=True)
class Hypotheses:
    """The captions so far.

    Attributes:
        tokens: words and EOS, then PAD.
        log_probs: of the tokens; zero at PAD.
        totals: sum of a caption's log probabilities; minus infinity for an empty beam.
        finished: whether a caption has ended.
        weights: attention for each token; anything at PAD.
    """

    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    totals: Float[Tensor, "B N"]
    finished: Bool[Tensor, "B N"]
    weights: Float[Tensor, "B N t L"]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Hypotheses":
        """N captions per image without any word."""
        new, images = memory.annotations.new_zeros, len(memory.annotations)
        return cls(
            tokens=new((images, n, 0), dtype=torch.long),
            log_probs=new((images, n, 0), dtype=torch.float),
            totals=new((images, n), dtype=torch.float),
            finished=new((images, n), dtype=torch.bool),
            weights=new((images, n, 0, 1), dtype=torch.float),
        )

    @property
    def last(self) -> Int[Tensor, "B N"]:
        """What the decoder reads next; PAD for ended captions and empty beams."""
        if self.tokens.shape[2]:
            return self.tokens[:, :, -1].masked_fill(self.finished, PAD)
        return torch.where(self.totals.isneginf(), PAD, BOS)

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
        parents: Int[Tensor, "B N"] | None = None,
    ) -> "Hypotheses":
        """The captions, or those with the indices `parents`, followed by one more token."""
        # An ensemble's weights are of the finest grid, known only now.
        earlier = self.weights.expand(-1, -1, -1, weights.shape[2])
        before = [self.tokens, self.log_probs, self.totals, self.finished, earlier]
        if parents is not None:
            before = [take_along_captions(part, parents) for part in before]
        return Hypotheses(
            torch.cat([before[0], tokens[:, :, None]], dim=2),
            torch.cat([before[1], log_probs[:, :, None]], dim=2),
            before[2] + log_probs,
            before[3] | (tokens == EOS),
            torch.cat([before[4], weights[:, :, None]], dim=2),
        )


def take_along_captions(
    part: Shaped[Tensor, "B N *X"], places: Int[Tensor, "B N"]
) -> Shaped[Tensor, "B N *X"]:
    """The captions of each image with these indices."""
    images, captions = places.shape
    rows = (places + captions * torch.arange(images, device=places.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return part.flatten(0, 1).index_select(0, rows).view_as(part)
