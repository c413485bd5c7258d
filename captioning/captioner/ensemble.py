"""Ensembles: several models as one, which average the probability of each word.

Shapes: B images, N captions per image, L regions, D annotation width, R regions of the finest grid.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from statistics import fmean
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

Grid = tuple[int, int]
"""Rows and columns of the regions."""


def ensemble(captioners: Sequence[Captioner], names: Sequence[str]) -> Captioner:
    """One captioner of several with the same vocabulary and preprocessing.

    Photos are encoded once for members with equal encoders. The first member's search is the
    default. The only map of a word is attention. The ensemble shares the members' parameters and
    cannot be saved.

    Args:
        captioners: the members, which must not be ensembles.
        names: of the members, such as their files, for messages.

    Raises:
        InputError: a member's vocabulary or preprocessing differs from the first member's.
    """
    first = captioners[0]
    for name, captioner in zip(names, captioners, strict=True):
        if captioner.vocabulary != first.vocabulary:
            raise InputError(f"{name}: knows other words than {names[0]}; both need the same")
        if captioner.preprocessing.config != first.preprocessing.config:
            raise InputError(
                f"{name}: sees photos at another size or fit than {names[0]}; both need the same "
                "data.size and data.fit"
            )
    keys = [fingerprint(member.model.encoder, first.preprocessing) for member in captioners]
    encoders = {key: each.model.encoder for key, each in zip(keys, captioners, strict=True)}
    side = first.preprocessing.size
    grids = {key: encoder.grid(side, side) for key, encoder in encoders.items()}
    ends = [0, *accumulate(map(prod, grids.values()))]
    regions = dict(zip(encoders, (slice(*pair) for pair in pairwise(ends)), strict=True))
    encoder = first.model.encoder
    if len(encoders) > 1:
        encoder = JointEncoder(list(encoders.values()), max(grids.values(), key=prod))

    def joined(members: Sequence[Model]) -> Model:
        decoder = EnsembleDecoder(members, [regions[key] for key in keys], [grids[k] for k in keys])
        return Model(encoder, Adapter(encoder.annotation_dim), decoder).eval()

    parts = first.vocabulary, first.preprocessing, first.search, ATTENTION
    captioner = Captioner(joined([each.model for each in captioners]), *parts, kernels=False)
    captioner.kernels = first.kernels
    captioner.fast = joined([each.fast for each in captioners])
    return captioner


class JointEncoder(Encoder):
    """The annotation vectors of several encoders, concatenated along the regions.

    Narrower vectors than the widest, D, are padded with zeros. `finest` of their grids is that of
    an ensemble's attention weights.
    """

    def __init__(self, encoders: Sequence[Encoder], finest: Grid) -> None:
        super().__init__()
        self.encoders = cast("Sequence[Encoder]", nn.ModuleList(encoders))
        self.annotation_dim = max(encoder.annotation_dim for encoder in encoders)
        self.finest = finest

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        vectors = [encoder(images) for encoder in self.encoders]
        padded = [F.pad(part, (0, self.annotation_dim - part.shape[2])) for part in vectors]
        return torch.cat(padded, dim=1)

    def grid(self, height: int, width: int) -> Grid:
        return self.finest

    def offset(self, size: int) -> tuple[float, float]:
        offsets = [encoder.offset(size) for encoder in self.encoders]
        return fmean(down for down, _ in offsets), fmean(right for _, right in offsets)


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memories that an ensemble's members have of the same images."""

    members: tuple[Memory, ...]


class EnsembleDecoder(Decoder):
    """A decoder whose next word has the mean of its members' probabilities.

    These are over the words that can be generated. The attention weights are the mean of the
    members', over the R regions of the finest grid.

    Args:
        members: models with the same vocabulary, whose adapters and decoders are used.
        regions: for each member, the slice of its regions.
        grids: for each member, rows and columns of its regions.
    """

    def __init__(
        self, members: Sequence[Model], regions: Sequence[slice], grids: Sequence[Grid]
    ) -> None:
        widths = [member.encoder.annotation_dim for member in members]
        super().__init__(max(widths), members[0].decoder.vocab_size)
        self.members = cast("Sequence[Model]", nn.ModuleList(members))
        self.regions = regions
        self.grids = grids

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> EnsembleMemory:
        members = tuple(
            member.remember(
                annotations[:, regions, : member.encoder.annotation_dim],
                None if mask is None else mask[:, regions],
            )
            for member, regions in zip(self.members, self.regions, strict=True)
        )
        return EnsembleMemory(annotations, mask, members)

    def start(self, memory: Memory, n: int) -> State:
        assert isinstance(memory, EnsembleMemory)
        pairs = zip(self.members, memory.members, strict=True)
        return _numbered(member.decoder.start(part, n) for member, part in pairs)

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Step all members; the logits are logarithms of the mean probabilities."""
        assert isinstance(memory, EnsembleMemory)
        finest = max(self.grids, key=prod)
        steps, weights = [], []
        parts = zip(self.members, memory.members, self.grids, strict=True)
        for number, (member, part, grid) in enumerate(parts):
            prefix = f"{number}."
            names = [name for name in state if name.startswith(prefix)]
            own = {name.removeprefix(prefix): state[name] for name in names}
            steps.append(member.decoder.step(tokens, own, part))
            weights.append(_spread(steps[-1].weights, grid, finest))
        log_probs = torch.stack([generable_log_probs(step.logits) for step in steps])
        return Step(
            log_probs.logsumexp(dim=0) - math.log(len(steps)),
            torch.stack(weights).mean(dim=0),
            _numbered(step.state for step in steps),
        )


def _numbered(states: Iterable[State]) -> State:
    """The members' states in one dict, with the member's number before each name."""
    return {
        f"{number}.{name}": part
        for number, state in enumerate(states)
        for name, part in state.items()
    }


def _spread(weights: Float[Tensor, "B N L"], grid: Grid, finest: Grid) -> Float[Tensor, "B N R"]:
    """Attention weights of one grid, resampled to another grid over the same image."""
    if grid == finest:
        return weights
    spread = F.interpolate(weights.unflatten(2, grid), finest, mode="area").flatten(2)
    return spread / spread.sum(dim=2, keepdim=True)
