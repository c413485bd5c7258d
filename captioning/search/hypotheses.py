"""The captions of a search while it runs.

Shapes: B images, N captions per image, L regions, t words so far.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models.decoder import Memory


@dataclass
class Paths:
    """The captions so far of the images whose search goes on.

    Attributes:
        images: which images of the batch these are.
        tokens: words, EOS, PAD after it.
        log_probs: of the tokens; zero at PAD.
        totals: sum of a caption's log probabilities; minus infinity for a beam not yet filled.
        finished: whether a caption has ended.
        history: for every word the attention weights and, where captions may follow others' paths,
            the places in the N captions of those that they continue. Only when a search ends are
            weights traced back along them; all else is small and follows at every word.
    """

    images: Int[Tensor, "B"]
    tokens: Int[Tensor, "B N t"]
    log_probs: Float[Tensor, "B N t"]
    totals: Float[Tensor, "B N"]
    finished: Bool[Tensor, "B N"]
    history: list[tuple[Float[Tensor, "B N L"], Int[Tensor, "B N"] | None]]

    @classmethod
    def empty(cls, memory: Memory, n: int) -> "Paths":
        """N captions per image without a word yet."""
        batch, new = len(memory.keys), memory.keys.new_zeros
        return cls(
            images=torch.arange(batch, device=memory.keys.device),
            tokens=new((batch, n, 0), dtype=torch.long),
            log_probs=new((batch, n, 0), dtype=torch.float),
            totals=new((batch, n), dtype=torch.float),
            finished=new((batch, n), dtype=torch.bool),
            history=[],
        )

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
            traced.append(weights if places is None else following(places)(weights))
            if parents is not None:
                places = parents if places is None else parents.gather(1, places)
        written = (self.tokens != PAD)[..., None]
        return torch.stack(traced[::-1], dim=2).masked_fill_(~written, 0.0)

    def extended(
        self,
        tokens: Int[Tensor, "B N"],
        log_probs: Float[Tensor, "B N"],
        weights: Float[Tensor, "B N L"],
        parents: Int[Tensor, "B N"] | None = None,
    ) -> "Paths":
        """The captions, or those at the places of their `parents`, with one token more."""
        before = self if parents is None else self._followed(parents)
        return Paths(
            self.images,
            torch.cat([before.tokens, tokens[:, :, None]], dim=2),
            torch.cat([before.log_probs, log_probs[:, :, None]], dim=2),
            before.totals + log_probs,
            before.finished | (tokens == EOS),
            [*self.history, (weights, parents)],
        )

    def kept(self, rows: Int[Tensor, "b"]) -> "Paths":
        """The captions of some of the images."""
        return Paths(
            images=self.images[rows],
            tokens=self.tokens[rows],
            log_probs=self.log_probs[rows],
            totals=self.totals[rows],
            finished=self.finished[rows],
            history=[
                (weights[rows], None if parents is None else parents[rows])
                for weights, parents in self.history
            ],
        )

    def _followed(self, parents: Int[Tensor, "B N"]) -> "Paths":
        follow = following(parents)
        return replace(
            self,
            tokens=follow(self.tokens),
            log_probs=follow(self.log_probs),
            totals=follow(self.totals),
            finished=follow(self.finished),
        )


def following(parents: Int[Tensor, "B N"]) -> Callable[[Tensor], Tensor]:
    """What takes the rows of `parents` along N from a part: (B, N, ...) -> (B, N, ...)."""
    images, captions = parents.shape
    rows = (parents + captions * torch.arange(images, device=parents.device)[:, None]).flatten()
    # Much faster than `gather`, which copies number by number.
    return lambda part: part.flatten(0, 1).index_select(0, rows).view_as(part)
