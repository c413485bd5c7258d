"""The captions of a search while it runs.

Shapes: B images, N captions per image, L regions, t words so far.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models.decoder import Memory


@dataclass(frozen=True)
class Hypotheses:
    """The captions so far.

    Attributes:
        tokens: words, EOS, PAD after it.
        log_probs: of the tokens; zero at PAD.
        totals: sum of a caption's log probabilities; minus infinity for a beam not yet filled.
        finished: whether a caption has ended.
        history: for every word the attention weights and, where captions may follow other ones,
            the places in the N captions of those that they continue. Weights are traced back along
            them only when a search ends; everything else is small and follows at every word.
    """

    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    totals: Float[Tensor, "B N"]
    finished: Bool[Tensor, "B N"]
    history: tuple[tuple[Float[Tensor, "B N L"], Int[Tensor, "B N"] | None], ...]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Hypotheses":
        """N captions per image without a word yet."""
        new = memory.annotations.new_zeros
        return cls(
            tokens=new((memory.images, n, 0), dtype=torch.long),
            log_probs=new((memory.images, n, 0), dtype=torch.float),
            totals=new((memory.images, n), dtype=torch.float),
            finished=new((memory.images, n), dtype=torch.bool),
            history=(),
        )

    @property
    def captions(self) -> int:
        """N."""
        return self.tokens.shape[1]

    @property
    def last(self) -> Int[Tensor, "B N"]:
        """What the decoder reads next; PAD where a caption has ended or not begun."""
        if self.tokens.shape[2]:
            return self.tokens[:, :, -1].masked_fill(self.finished, PAD)
        return torch.where(self.totals.isneginf(), PAD, BOS)

    @property
    def lengths(self) -> Int[Tensor, "B N"]:
        """Tokens of each caption, EOS counted."""
        return (self.tokens != PAD).sum(dim=2)

    @property
    def weights(self) -> Float[Tensor, "B N t L"]:
        """Attention while each token was written; zero at PAD."""
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
        """The captions, or those at the places of their `parents`, with one token more."""
        before = self if parents is None else self._follow(parents)
        return Hypotheses(
            torch.cat([before.tokens, tokens[:, :, None]], dim=2),
            torch.cat([before.log_probs, log_probs[:, :, None]], dim=2),
            before.totals + log_probs,
            before.finished | (tokens == EOS),
            (*self.history, (weights, parents)),
        )

    def keep(self, images: Int[Tensor, "b"]) -> "Hypotheses":
        """The captions of some of the images."""
        return Hypotheses(
            tokens=self.tokens[images],
            log_probs=self.log_probs[images],
            totals=self.totals[images],
            finished=self.finished[images],
            history=tuple(
                (weights[images], None if parents is None else parents[images])
                for weights, parents in self.history
            ),
        )

    def _follow(self, parents: Int[Tensor, "B N"]) -> "Hypotheses":
        return replace(
            self,
            tokens=take_along_captions(self.tokens, parents),
            log_probs=take_along_captions(self.log_probs, parents),
            totals=take_along_captions(self.totals, parents),
            finished=take_along_captions(self.finished, parents),
        )


def take_along_captions(
    part: Shaped[Tensor, "B N *X"], places: Int[Tensor, "B N"]
) -> Shaped[Tensor, "B N *X"]:
    """Of each image the captions at these places."""
    images, captions = places.shape
    rows = (places + captions * torch.arange(images, device=places.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return part.flatten(0, 1).index_select(0, rows).view_as(part)
