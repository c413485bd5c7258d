"""Ensembles: several models as one, which average the probability of each word.

Shapes: B images, N captions per image, H x W pixels, L regions, D annotation width, R regions of
the finest grid, V vocabulary.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import cast

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.captioner.captioner import Captioner
from captioning.data.feature_cache import fingerprint
from captioning.errors import InputError
from captioning.maps import ATTENTION
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.decoder import Memory, State, Step
from captioning.search.search import generable_log_probs


def ensemble(captioners: Sequence[Captioner], names: Sequence[str]) -> Captioner:
    """One captioner of several with the same vocabulary and preprocessing.

    Photos are encoded once for members with equal encoders. The first member's search is the
    default. The only map of a word is attention. The ensemble shares the members' parameters and
    cannot be saved: it is made again from its members.

    Args:
        captioners: the members, which must not be ensembles.
        names: their names for messages, such as their files.

    Raises:
        InputError: a member's vocabulary or preprocessing differs from the first member's.
    """
    first = captioners[0]
    for name, captioner in zip(names, captioners, strict=True):
        if captioner.vocabulary != first.vocabulary:
            raise InputError(
                f"{name}: knows other words than {names[0]}; an ensemble needs models with the "
                "same vocabulary, so train them on the same captions with the same min_count"
            )
        if captioner.preprocessing.config != first.preprocessing.config:
            raise InputError(
                f"{name}: sees photos at another size or fit than {names[0]}; train the models of "
                "an ensemble with the same data.size and data.fit"
            )
    keys = [fingerprint(member.model.encoder, member.preprocessing) for member in captioners]
    distinct = dict(zip(keys, (member.model.encoder for member in captioners), strict=True))
    side = first.preprocessing.size
    encoder: Encoder = first.model.encoder
    if len(distinct) > 1:
        encoder = JointEncoder(list(distinct.values()), side)
    grids = {key: each.grid(side, side) for key, each in distinct.items()}
    ends = [0, *accumulate(map(prod, grids.values()))]
    regions = dict(zip(distinct, (slice(*pair) for pair in pairwise(ends)), strict=True))

    def joined(members: Sequence[Model]) -> Model:
        decoder = EnsembleDecoder(members, [regions[key] for key in keys], [grids[k] for k in keys])
        return Model(encoder, Adapter(encoder.annotation_dim), decoder).eval()

    models = [member.model for member in captioners]
    captioner = Captioner(
        *(joined(models), first.vocabulary, first.preprocessing, first.search, ATTENTION),
        kernels=False,
    )
    captioner.kernels = first.kernels
    captioner.fast = joined([member.fast for member in captioners])
    return captioner


class JointEncoder(Encoder):
    """The annotation vectors of several encoders, concatenated along the regions.

    Args:
        encoders: the encoders.
        side: of the images, in pixels.

    Attributes:
        annotation_dim: D, the largest of the encoders'; narrower vectors are padded with zeros.
    """

    def __init__(self, encoders: Sequence[Encoder], side: int) -> None:
        super().__init__()
        self.encoders = cast("Sequence[Encoder]", nn.ModuleList(encoders))
        self.annotation_dim = max(encoder.annotation_dim for encoder in encoders)
        self.finest = finest([encoder.grid(side, side) for encoder in encoders])

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """The annotation vectors of all encoders."""
        vectors = [encoder(images) for encoder in self.encoders]
        padded = [F.pad(part, (0, self.annotation_dim - part.shape[2])) for part in vectors]
        return torch.cat(padded, dim=1)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The finest of the encoders' grids, which an ensemble's attention weights use."""
        return self.finest


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
        members: models with the same vocabulary, whose adapters and decoders are used.
        regions: for each member, the slice of its regions.
        grids: for each member, rows and columns of its regions.
    """

    def __init__(
        self,
        members: Sequence[Model],
        regions: Sequence[slice],
        grids: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__(
            max(member.encoder.annotation_dim for member in members),
            members[0].decoder.vocab_size,
        )
        self.members = cast("Sequence[Model]", nn.ModuleList(members))
        self.regions = regions
        self.grids = grids

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> EnsembleMemory:
        """The members' memories, each of its own regions."""
        members = tuple(
            member.remember(
                annotations[:, regions, : member.encoder.annotation_dim],
                None if mask is None else mask[:, regions],
            )
            for member, regions in zip(self.members, self.regions, strict=True)
        )
        return EnsembleMemory(annotations, mask, members)

    def start(self, memory: Memory, n: int) -> State:
        """The members' states in one dict, with the member's number before each name."""
        assert isinstance(memory, EnsembleMemory)
        return _joined(
            member.decoder.start(part, n)
            for member, part in zip(self.members, memory.members, strict=True)
        )

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Step all members; the logits are logarithms of the mean probabilities."""
        assert isinstance(memory, EnsembleMemory)
        steps = [
            member.decoder.step(tokens, _of_member(state, number), part)
            for number, (member, part) in enumerate(zip(self.members, memory.members, strict=True))
        ]
        log_probs = torch.stack([generable_log_probs(step.logits) for step in steps])
        target = finest(self.grids)
        weights = [
            _spread(step.weights, grid, target)
            for step, grid in zip(steps, self.grids, strict=True)
        ]
        return Step(
            log_probs.logsumexp(dim=0) - math.log(len(steps)),
            torch.stack(weights).mean(dim=0),
            _joined(step.state for step in steps),
        )


def finest(grids: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The grid (rows, columns) with the most cells."""
    return max(grids, key=prod)


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
    spread = F.interpolate(weights.unflatten(2, grid), target, mode="area").flatten(2)
    return spread / spread.sum(dim=2, keepdim=True)
