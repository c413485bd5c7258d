"""A decoder that averages several decoders.

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

from captioning.captioner.joint_encoder import finest
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search.search import generable_log_probs


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memory of an ensemble.

    Attributes:
        members: the members' memories of the same images.
    """

    members: tuple[Memory, ...]


class EnsembleDecoder(Decoder):
    """A decoder whose next word has the mean of its members' probabilities.

    A member's probabilities are normalised as in a search by it alone, over the words that can be
    generated. The attention weights are the mean of the members'; if their grids differ, each
    coarser region's weight is spread evenly over its part of the finest grid.

    Args:
        members: the decoders; their vocabularies are the same.
        regions: for each member, the slice of its regions.
        grids: for each member, rows and columns of its regions; none if all grids are equal.
    """

    def __init__(
        self,
        members: Sequence[Decoder],
        regions: Sequence[slice],
        grids: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(max(member.annotation_dim for member in members), members[0].vocab_size)
        self.members = cast("Sequence[Decoder]", nn.ModuleList(members))
        self.regions = regions
        self.grids = grids

    def with_members(self, members: Sequence[Decoder]) -> "EnsembleDecoder":
        """The same ensemble with other decoders, such as the members' kernels."""
        return EnsembleDecoder(members, self.regions, self.grids)

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> EnsembleMemory:
        """The members' memories, each of its own regions."""
        members = tuple(
            member.remember(
                annotations[:, regions, : member.annotation_dim],
                None if mask is None else mask[:, regions],
            )
            for member, regions in zip(self.members, self.regions, strict=True)
        )
        return EnsembleMemory(annotations, mask, members)

    def start(self, memory: Memory, n: int) -> State:
        """The members' states in one dict, with the member's number before each name."""
        assert isinstance(memory, EnsembleMemory)
        return _joined(
            member.start(part, n) for member, part in zip(self.members, memory.members, strict=True)
        )

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Step all members; the logits are logarithms of the mean probabilities."""
        assert isinstance(memory, EnsembleMemory)
        steps = [
            member.step(tokens, _of_member(state, number), part)
            for number, (member, part) in enumerate(zip(self.members, memory.members, strict=True))
        ]
        log_probs = torch.stack([generable_log_probs(step.logits) for step in steps])
        return Step(
            log_probs.logsumexp(dim=0) - math.log(len(steps)),
            self._mean([step.weights for step in steps]),
            _joined(step.state for step in steps),
        )

    @property
    def has_evidence(self) -> bool:
        """Whether all members have evidence, for the same regions."""
        return self.grids is None and all(member.has_evidence for member in self.members)

    def evidence(
        self,
        memory: Memory,
        words: Int[Tensor, "B N T"],
        expected: Float[Tensor, "B N T V"] | None = None,
    ) -> Float[Tensor, "B N T L"]:
        """The mean of the members' evidence, whose regions are the same.

        Raises:
            InputError: a member has none, or the members' regions differ.
        """
        found = [member.evidence(part, words, expected) for member, part in self._pairs(memory)]
        return torch.stack(found).mean(dim=0)

    def context_evidence(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        expected: Float[Tensor, "B N T V"],
        earlier: float = 1.0,
    ) -> Float[Tensor, "B N T L"]:
        """The mean of the members' context evidence, whose regions are the same.

        Raises:
            InputError: a member has none, or the members' regions differ.
        """
        found = [
            member.context_evidence(part, tokens, expected, earlier)
            for member, part in self._pairs(memory)
        ]
        return torch.stack(found).mean(dim=0)

    def _pairs(self, memory: Memory) -> list[tuple[Decoder, Memory]]:
        """The members and their memories, of the same regions."""
        assert isinstance(memory, EnsembleMemory)
        if self.grids is not None:
            raise InputError("members with different grids share no region; choose attention")
        return list(zip(self.members, memory.members, strict=True))

    def _mean(self, weights: Sequence[Float[Tensor, "B N _"]]) -> Float[Tensor, "B N R"]:
        """The mean of the members' weights, over the finest grid."""
        if self.grids is not None:
            target = finest(self.grids)
            weights = [
                _spread(each, grid, target) for each, grid in zip(weights, self.grids, strict=True)
            ]
        return torch.stack(list(weights)).mean(dim=0)


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


def _spread(
    weights: Float[Tensor, "B N L"], grid: tuple[int, int], target: tuple[int, int]
) -> Float[Tensor, "B N R"]:
    """Attention weights of one grid, resampled to another grid over the same image."""
    if grid == target:
        return weights
    with torch.autocast(weights.device.type, enabled=False):  # a product would round the weights
        return weights @ _shares(grid, target).to(weights)


@cache
def _shares(grid: tuple[int, int], target: tuple[int, int]) -> Float[Tensor, "L R"]:
    """The share of each cell of a grid that lies in each cell of another grid over it."""
    rows, columns = (_shares_along(*cells) for cells in zip(grid, target, strict=True))
    return torch.kron(rows, columns)


def _shares_along(cells: int, others: int) -> Float[Tensor, "cells others"]:
    """The same along one axis."""
    # In units that make the edges of both grids whole numbers.
    edges = torch.arange(cells + 1) * others
    other_edges = torch.arange(others + 1) * cells
    ends = torch.minimum(edges[1:, None], other_edges[None, 1:])
    starts = torch.maximum(edges[:-1, None], other_edges[None, :-1])
    return (ends - starts).clamp(min=0) / others
