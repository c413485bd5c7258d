"""Several trained models as one: each word by the mean of the probabilities that they give it.

Shapes: B images, N captions per image, L regions, D annotation width, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.captioner.captioner import Captioner
from captioning.captioner.joint_encoder import JointEncoder, SideBySide
from captioning.data.features import fingerprint
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.encoder import CNNEncoder
from captioning.search.search import NEVER


def ensemble(captioners: Sequence[Captioner], names: Sequence[str]) -> Captioner:
    """One captioner of several that know the same words; encoders and image sizes may differ.

    Photos are read, and encoded, once for all members that do it alike. The ensemble searches as
    the first member does unless a call says otherwise. It shares the members' parameters, and is
    not saved itself: what makes it again are the members.

    Args:
        captioners: the members, none of them an ensemble itself.
        names: what an error calls them, such as their files.

    Raises:
        InputError: a member's vocabulary is not that of the first.
    """
    first = captioners[0]
    for name, captioner in zip(names, captioners, strict=True):
        if captioner.vocabulary != first.vocabulary:
            raise InputError(
                f"{name}: knows other words than {names[0]}; an ensemble needs models with the "
                "same vocabulary, so train them on the same captions with the same min_count"
            )
    # An encoder is the same where architecture, parameters and what it sees of a photo are.
    keys = [fingerprint(captioner.encoder, captioner.preprocessing) for captioner in captioners]
    distinct = dict(zip(keys, captioners, strict=True))
    if len(distinct) == 1:
        encoder, preprocessing = first.encoder, first.preprocessing
        regions = dict.fromkeys(distinct, slice(None))
    else:
        encoder, preprocessing = _joint(list(distinct.values()))
        regions = dict(zip(distinct, encoder.regions, strict=True))
    decoder = EnsembleDecoder(
        [captioner.decoder for captioner in captioners], [regions[key] for key in keys]
    )
    return Captioner(encoder, decoder, first.vocabulary, preprocessing, first.search).eval()


class EnsembleMemory(Memory):
    """What every member remembers; for a search, to which a memory is its images, the first one's.

    Attributes:
        members: the members' memories of the same images.
    """

    members: tuple[Memory, ...]

    @classmethod
    def of(cls, members: Sequence[Memory]) -> "EnsembleMemory":
        """The memory of an ensemble."""
        memory = cls(*members[0])
        memory.members = tuple(members)
        return memory

    def kept(self, images: Int[Tensor, "b"]) -> "EnsembleMemory":
        """The memory of some of the images."""
        return self.of([member.kept(images) for member in self.members])


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

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> EnsembleMemory:
        """What each member remembers of its own regions."""
        return EnsembleMemory.of(
            [
                member.remember(
                    annotations[:, regions, : member.annotation_dim],
                    None if mask is None else mask[:, regions],
                )
                for member, regions in zip(self.members, self.regions, strict=True)
            ]
        )

    def start(self, memory: Memory, n: int) -> State:
        """The members' states in one, the names of each behind the member's number."""
        assert isinstance(memory, EnsembleMemory)
        return _joined(
            member.start(part, n) for member, part in zip(self.members, memory.members, strict=True)
        )

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """All members prepared."""
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.prepared())
            yield

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Let all members read the word; the logits are logarithms of the mean probabilities."""
        assert isinstance(memory, EnsembleMemory)
        steps = [
            member.step(tokens, _of_member(state, number), part)
            for number, (member, part) in enumerate(zip(self.members, memory.members, strict=True))
        ]
        log_probs = torch.stack([_log_probs(step.logits) for step in steps])
        finest = max(step.weights.shape[2] for step in steps)
        weights = torch.stack([_spread(step.weights, finest) for step in steps])
        return Step(
            log_probs.logsumexp(dim=0) - math.log(len(steps)),
            steps[0].rows,
            weights.mean(dim=0),
            _joined(step.state for step in steps),
        )


def _joint(members: Sequence[Captioner]) -> tuple[JointEncoder, Preprocessing]:
    """The members' encoders as one, and what makes the images for it."""
    parts = {repr(member.preprocessing.config): member.preprocessing for member in members}
    places, left = {}, 0
    for kind, part in parts.items():
        places[kind] = (left, part.size)
        left += part.size
    encoder = JointEncoder(
        [cast("CNNEncoder", member.encoder) for member in members],
        [places[repr(member.preprocessing.config)] for member in members],
    )
    alike = len(parts) == 1
    return encoder, members[0].preprocessing if alike else SideBySide(list(parts.values()))


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


def _log_probs(logits: Float[Tensor, "r V"]) -> Float[Tensor, "r V"]:
    """Logarithms of probabilities among the words that can ever be generated."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    never = torch.tensor(NEVER, device=logits.device)
    return logits.index_fill(-1, never, float("-inf")).log_softmax(dim=-1)


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
