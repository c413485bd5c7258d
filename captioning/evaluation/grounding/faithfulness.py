"""Faithfulness of a map: how a word's probability changes when regions are hidden or shown.

Two measures: the drop without the most relevant regions, and the deletion and insertion curves of
Petsiuk et al. 2018 ("RISE: Randomized Input Sampling for Explanation of Black-box Models"), with
regions instead of pixels. Regions are hidden from the caption's first word on, so that the
decoder's state contains nothing of them.

Shapes: C captions, each with its image, L regions, S tokens with BOS, P phrases, K sets of regions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.evaluation.grounding.targets import DROPS, FAITHFULNESS, gaussian, named
from captioning.search.search import NEVER

HIDDEN = 0.5
"""The hidden regions hold at least this share of the map."""

DRAWS = 3
"""The number of random sets of regions that are hidden for each phrase."""

LEVELS = 6
"""A curve hides the shares 0, 1/6, ..., 5/6 of the regions, or shows 1/6, ..., 1."""

ROWS = 128
"""Batch size, in phrases with hidden regions; a batch takes about 100 MB."""

Read: TypeAlias = Callable[[Bool[Tensor, "P K L"]], Float[Tensor, "P K"]]
"""Each phrase's probability when it can attend to these regions only."""


def phrase_probabilities(
    model: nn.Module,
    annotations: Float[Tensor, "C L D"],
    tokens: Int[Tensor, "C S"],
    phrases: Sequence[tuple[int, int, int]],
    seen: Bool[Tensor, "P K L"],
) -> Float[Tensor, "P K"]:
    """The joint probability of each phrase's words, given the words before it.

    Args:
        model: maps annotations, tokens and mask to logits and weights.
        annotations: of each caption's image.
        tokens: the captions from BOS on, padded with PAD.
        phrases: the caption of each, and start and stop in its words.
        seen: the regions that it can attend to.
    """
    rows = torch.tensor(phrases, device=tokens.device).repeat_interleave(seen.shape[1], dim=0)
    found = []
    for part, mask in zip(rows.split(ROWS), seen.flatten(0, 1).split(ROWS), strict=True):
        captions, starts, stops = part.T
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        read = tokens[captions, :-1].masked_fill(places >= stops[:, None], PAD)
        row, column = ((places >= starts[:, None]) & (places < stops[:, None])).nonzero().T
        logits = model(annotations[captions], read[:, None], mask)[0]
        scores = logits[row, 0, column].double()
        del logits  # before those of the next part
        scores[:, list(NEVER)] = float("-inf")
        wanted = tokens[captions[row], column + 1]
        log_probs = scores.log_softmax(dim=-1).gather(1, wanted[:, None])[:, 0]
        found.append(log_probs.new_zeros(len(part)).index_add(0, row, log_probs).exp())
    return torch.cat(found).view(seen.shape[:2])


def occlusion_drops(
    read: Read,
    weights: Float[Tensor, "P L"],
    grid: tuple[int, int],
    noise: Float[Tensor, "P DRAWS L"],
) -> dict[str, Float[Tensor, " P"]]:
    """Each phrase's probability, and its drop when regions are hidden; by the names in `DROPS`.

    Hidden are the fewest most relevant regions that hold `HIDDEN` of the map `weights` and, as
    baselines, as many random ones, where `noise` is least, and those that hold as much of the
    Gaussian in the middle.
    """
    attended = _most_relevant(weights)
    middle = _most_relevant(torch.from_numpy(gaussian(grid)).flatten().to(weights)[None])
    rank = noise.argsort(dim=2).argsort(dim=2).to(attended.device)
    random = rank < attended.sum(dim=1)[:, None, None]
    single = [torch.zeros_like(attended), attended, middle.expand_as(attended)]
    hidden = torch.cat([torch.stack(single, dim=1), random], dim=1)  # (P, 3 + DRAWS, L)
    whole, without, centred, *at_random = read(~hidden).unbind(dim=1)
    drops = whole - without, whole - torch.stack(at_random).mean(dim=0), whole - centred
    return dict(zip(DROPS, (whole, *drops), strict=True))


def _most_relevant(weights: Float[Tensor, "P L"]) -> Bool[Tensor, "P L"]:
    """The fewest regions that hold `HIDDEN` of the map in total, but never all regions."""
    largest, order = weights.sort(dim=1, descending=True, stable=True)
    chosen = largest.cumsum(dim=1) - largest < HIDDEN
    chosen[:, -1] = False
    return torch.zeros_like(chosen).scatter(1, order, chosen)


def curve_areas(
    read: Read, maps: Mapping[str, Float[Tensor, "P L"]]
) -> dict[str, Float[Tensor, " P"]]:
    """The areas under the curves of each phrase's probability, over a width of one.

    For deletion, regions are hidden, the most relevant first; low is good. For insertion they are
    shown, the most relevant first; high is good. Overall is insertion minus deletion (Zhang et al.
    2021, "Group-CAM"). Of equally relevant regions, the first in reading order comes first. The
    areas have the names of `FAITHFULNESS`, `named` for each source of a map.
    """
    rank = torch.stack([*maps.values()], dim=1).argsort(dim=2, descending=True, stable=True)
    rank, regions = rank.argsort(dim=2), rank.shape[2]
    shown = [max(1, min(round(regions * i / LEVELS), regions)) for i in range(1, LEVELS + 1)]
    top = torch.stack([rank < count for count in shown], dim=2)  # (P, sources, LEVELS, L)
    # What deletion leaves: at least one region, which attention needs.
    left = torch.stack([rank >= min(count, regions - 1) for count in shown[:-1]], dim=2)
    seen = torch.cat([top[:, :, -1:], left, top[:, :, :-1]], dim=2)
    found = read(seen.flatten(1, 2)).view(seen.shape[:3])
    insertion = torch.cat([found[..., LEVELS:], found[..., :1]], dim=2)
    both = torch.stack([found[..., :LEVELS], insertion], dim=2)
    under = torch.trapezoid(both, dim=3) / (LEVELS - 1)  # (P, sources, 2)
    areas = torch.cat([under, under[..., 1:] - under[..., :1]], dim=2).flatten(1)
    names = [named(measure, source) for source in maps for measure in FAITHFULNESS]
    return dict(zip(names, areas.unbind(dim=1), strict=True))
