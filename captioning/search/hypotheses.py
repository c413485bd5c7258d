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
        history: for every word the attention weights and, in beam search, the index of the caption
            that each caption continues. `weights` traces them back when a search ends; the other
            tensors are small and are reordered at every word.
    """

    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    totals: Float[Tensor, "B N"]
    finished: Bool[Tensor, "B N"]
    history: tuple[tuple[Float[Tensor, "B N L"], Int[Tensor, "B N"] | None], ...]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Hypotheses":
        """N captions per image without any word."""
        new, images = memory.annotations.new_zeros, len(memory.annotations)
        return cls(
            tokens=new((images, n, 0), dtype=torch.long),
            log_probs=new((images, n, 0), dtype=torch.float),
            totals=new((images, n), dtype=torch.float),
            finished=new((images, n), dtype=torch.bool),
            history=(),
        )

    @property
    def last(self) -> Int[Tensor, "B N"]:
        """What the decoder reads next; PAD for ended captions and empty beams."""
        if self.tokens.shape[2]:
            return self.tokens[:, :, -1].masked_fill(self.finished, PAD)
        return torch.where(self.totals.isneginf(), PAD, BOS)

    @property
    def weights(self) -> Float[Tensor, "B N t L"]:
        """Attention for each token; zero at PAD."""
        places = None
        traced = []
        for weights, parents in reversed(self.history):
            traced.append(weights if places is None else take_along_captions(weights, places))
            if parents is not None:
                places = parents if places is None else parents.gather(1, places)
        written = (self.tokens != PAD)[..., None]
        return torch.stack(traced[::-1], dim=2).masked_fill_(~written, 0.0)

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
        parents: Int[Tensor, "B N"] | None = None,
    ) -> "Hypotheses":
        """The captions, or those with the indices `parents`, followed by one more token."""
        before = [self.tokens, self.log_probs, self.totals, self.finished]
        if parents is not None:
            before = [take_along_captions(part, parents) for part in before]
        return Hypotheses(
            torch.cat([before[0], tokens[:, :, None]], dim=2),
            torch.cat([before[1], log_probs[:, :, None]], dim=2),
            before[2] + log_probs,
            before[3] | (tokens == EOS),
            (*self.history, (weights, parents)),
        )


def take_along_captions(
    part: Shaped[Tensor, "B N *X"], places: Int[Tensor, "B N"]
) -> Shaped[Tensor, "B N *X"]:
    """The captions of each image with these indices."""
    images, captions = places.shape
    rows = (places + captions * torch.arange(images, device=places.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return part.flatten(0, 1).index_select(0, rows).view_as(part)
