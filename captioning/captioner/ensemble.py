"""Ensembles: several models as one, which average the probability of each word.

Shapes: B images, N captions per image, H x W pixels, L regions, D annotation width, R regions of
the finest grid, V vocabulary.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.captioner.captioner import Captioner
from captioning.data.feature_cache import fingerprint
from captioning.data.images import Upload
from captioning.data.preprocessing import Preprocessing, View
from captioning.errors import InputError
from captioning.maps import ATTENTION
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.decoder import Memory, State, Step
from captioning.search.search import generable_log_probs


def ensemble(captioners: Sequence[Captioner], names: Sequence[str]) -> Captioner:
    """One captioner of several with the same vocabulary; encoders and image sizes may differ.

    Photos are read once for members with equal preprocessings, and encoded once for members with
    equal encoders. The first member's search is the default. The only map of a word is attention.
    The ensemble shares the members' parameters and cannot be saved: it is rebuilt from its members.

    Args:
        captioners: the members, which must not be ensembles.
        names: their names for messages, such as their files.

    Raises:
        InputError: a member's vocabulary differs from the first member's.
    """
    first = captioners[0]
    for name, captioner in zip(names, captioners, strict=True):
        if captioner.vocabulary != first.vocabulary:
            raise InputError(
                f"{name}: knows other words than {names[0]}; an ensemble needs models with the "
                "same vocabulary, so train them on the same captions with the same min_count"
            )
    # Encoders are equal if their architectures, parameters and preprocessings are.
    keys = [fingerprint(member.model.encoder, member.preprocessing) for member in captioners]
    distinct: dict[str, Captioner] = {}
    for key, captioner in zip(keys, captioners, strict=True):
        distinct.setdefault(key, captioner)
    encoder, preprocessing = first.model.encoder, first.preprocessing
    grid = encoder.grid(preprocessing.size, preprocessing.size)
    regions, grids = [slice(None)] * len(keys), [grid] * len(keys)
    if len(distinct) > 1:
        encoder, preprocessing = _joint(list(distinct.values()))
        place = {key: number for number, key in enumerate(distinct)}
        regions = [encoder.regions[place[key]] for key in keys]
        grids = [encoder.grids[place[key]] for key in keys]
    adapter = Adapter(encoder.annotation_dim)

    def joined(members: Sequence[Model]) -> Model:
        return Model(encoder, adapter, EnsembleDecoder(members, regions, grids)).eval()

    captioner = Captioner(
        joined([member.model for member in captioners]),
        first.vocabulary,
        preprocessing,
        first.search,
        ATTENTION,
        kernels=False,
    )
    captioner.kernels = first.kernels
    captioner.fast = joined([member.fast for member in captioners])
    return captioner


def _joint(members: Sequence[Captioner]) -> tuple["JointEncoder", Preprocessing]:
    """The members' encoders as one, and its preprocessing."""
    parts = {repr(member.preprocessing.config): member.preprocessing for member in members}
    if len(fits := {part.fit for part in parts.values()}) > 1:
        raise InputError(
            f"an ensemble's models must see the same part of a photo, not {' and '.join(fits)}; "
            "train them with the same data.fit"
        )
    places, left = {}, 0
    for kind, part in parts.items():
        places[kind] = (left, part.size)
        left += part.size
    encoder = JointEncoder(
        [member.model.encoder for member in members],
        [places[repr(member.preprocessing.config)] for member in members],
    )
    alike = len(parts) == 1
    return encoder, members[0].preprocessing if alike else SideBySide(list(parts.values()))


class SideBySide(Preprocessing):
    """The images of several preprocessings as one, from left to right.

    All show the same part of the photo, each at its own size; smaller ones are padded with zeros
    below.

    Args:
        parts: the preprocessings.
    """

    def __init__(self, parts: Sequence[Preprocessing]) -> None:
        super().__init__(max(part.size for part in parts), parts[0].fit)
        self.parts = parts

    def __call__(self, photo: str | Path | Upload | Image) -> View:
        """All images side by side: pixels (3, H, W), with H the largest side and W their sum.

        Raises:
            InputError: the photo cannot be read.
        """
        views = [part(photo) for part in self.parts]
        padded = [
            F.pad(view.pixels, (0, 0, 0, self.size - part.size))
            for part, view in zip(self.parts, views, strict=True)
        ]
        return views[0]._replace(pixels=torch.cat(padded, dim=2))


class JointEncoder(Encoder):
    """The annotation vectors of several encoders, concatenated along the regions.

    Args:
        encoders: the encoders.
        places: for each encoder, left edge and side of its image in the joint one, in pixels.

    Attributes:
        annotation_dim: D, the largest of the encoders'; narrower vectors are padded with zeros.
        grids: for each encoder, rows and columns of its regions.
        regions: for each encoder, the slice of its regions among the L.
    """

    def __init__(self, encoders: Sequence[Encoder], places: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.encoders = cast("Sequence[Encoder]", nn.ModuleList(encoders))
        self.places = places
        self.annotation_dim = max(encoder.annotation_dim for encoder in encoders)
        self.grids = [
            encoder.grid(side, side) for encoder, (_, side) in zip(encoders, places, strict=True)
        ]
        ends = [0, *accumulate(map(prod, self.grids))]
        self.regions = [slice(*pair) for pair in pairwise(ends)]

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors of images from `SideBySide`, or of one image for all encoders."""
        vectors = [
            encoder(images[:, :, :side, left : left + side])
            for encoder, (left, side) in zip(self.encoders, self.places, strict=True)
        ]
        padded = [F.pad(part, (0, self.annotation_dim - part.shape[2])) for part in vectors]
        return torch.cat(padded, dim=1)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """The finest of the encoders' grids, which an ensemble's attention weights use."""
        return finest(self.grids)


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
    with torch.autocast(weights.device.type, enabled=False):  # a product would round the weights
        rows, columns = (_shares(*cells).to(weights) for cells in zip(grid, target, strict=True))
        return weights @ torch.kron(rows, columns)


def _shares(cells: int, others: int) -> Float[Tensor, "cells others"]:
    """Share of each cell along one axis of a grid that lies in each cell of another grid."""
    # In units that make the edges of both grids whole numbers.
    edges = torch.arange(cells + 1) * others
    other_edges = torch.arange(others + 1) * cells
    ends = torch.minimum(edges[1:, None], other_edges[None, 1:])
    starts = torch.maximum(edges[:-1, None], other_edges[None, :-1])
    return (ends - starts).clamp(min=0) / others
