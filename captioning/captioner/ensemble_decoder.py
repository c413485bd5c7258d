"""A decoder that asks several decoders for every word.

Shapes: B images, N captions per image, L regions, D annotation width, R regions of the finest grid.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search.search import generable_log_probs


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """What the members of an ensemble remember.

    Attributes:
        members: the members' memories of the same images.
    """

    members: tuple[Memory, ...]


class EnsembleDecoder(Decoder):
    """A decoder whose next word has the mean of its members' probabilities.

    A member's probabilities are those that a search takes from it alone: shares among the words
    that can ever be generated. Its attention weights are the mean of the members'; where their
    grids differ, each coarser region's weight is spread evenly over its part of the finest grid.

    Args:
        members: the decoders; their vocabularies are the same.
        regions: for each member, which of the regions are its own.
    """

    def __init__(self, members: Sequence[Decoder], regions: Sequence[slice]) -> None:
        super().__init__(max(member.annotation_dim for member in members), members[0].vocab_size)
        self.members = cast("Sequence[Decoder]", nn.ModuleList(members))
        self.regions = regions

    def with_members(self, members: Sequence[Decoder]) -> "EnsembleDecoder":
        """The same ensemble of other decoders, such as the members' kernels."""
        return EnsembleDecoder(members, self.regions)

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> EnsembleMemory:
        """What each member remembers of its own regions."""
        members = tuple(
            member.remember(
                annotations[:, regions, : member.annotation_dim],
                None if mask is None else mask[:, regions],
            )
            for member, regions in zip(self.members, self.regions, strict=True)
        )
        return EnsembleMemory(annotations, mask, members)

    def start(self, memory: Memory, n: int) -> State:
        """The members' states in one, the names of each behind the member's number."""
        assert isinstance(memory, EnsembleMemory)
        return _joined(
            member.start(part, n) for member, part in zip(self.members, memory.members, strict=True)
        )

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Let all members read the word; the logits are logarithms of the mean probabilities."""
        assert isinstance(memory, EnsembleMemory)
        steps = [
            member.step(tokens, _of_member(state, number), part)
            for number, (member, part) in enumerate(zip(self.members, memory.members, strict=True))
        ]
        log_probs = torch.stack([generable_log_probs(step.logits) for step in steps])
        finest = max(step.weights.shape[2] for step in steps)
        weights = torch.stack([_spread(step.weights, finest) for step in steps])
        return Step(
            log_probs.logsumexp(dim=0) - math.log(len(steps)),
            weights.mean(dim=0),
            _joined(step.state for step in steps),
        )


def _joined(states: Iterable[State]) -> State:
    return {
        f"{number}.{name}": part
        for number, state in enumerate(states)
        for name, part in state.items()
    }


def _of_member(state: State, number: int) -> State:
    prefix = f"{number}."
    return {
        name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)
    }


def _spread(weights: Float[Tensor, "B N L"], regions: int) -> Float[Tensor, "B N R"]:
    """The weights of a square grid over the cells of another one of so many regions."""
    if weights.shape[2] == regions:
        return weights
    with torch.autocast(weights.device.type, enabled=False):  # a product would round the weights
        return weights @ _shares(weights.shape[2], regions).to(weights)


@cache
def _shares(regions: int, others: int) -> Float[Tensor, "L R"]:
    """Which share of each cell of a square grid lies in each cell of another one over it."""
    cells, others_cells = math.isqrt(regions), math.isqrt(others)
    # Along one axis, in units in which the edges of both grids are whole numbers.
    edges = torch.arange(cells + 1) * others_cells
    other_edges = torch.arange(others_cells + 1) * cells
    ends = torch.minimum(edges[1:, None], other_edges[None, 1:])
    starts = torch.maximum(edges[:-1, None], other_edges[None, :-1])
    shares = (ends - starts).clamp(min=0) / others_cells
    return torch.kron(shares, shares)
