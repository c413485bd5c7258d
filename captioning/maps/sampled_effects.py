"""What each region adds to a word's probability, sampled by hiding random halves of the photo.

Shapes: B images, N captions per image, L regions (rows x columns), T words, H halves.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from captioning.maps.evidence_map import around_each
from captioning.maps.reading import Reading

PAIRS = 32
"""The most random halves, each with the half that it leaves."""

SMOOTHINGS = 4
"""How often noise is averaged over 3 x 3 regions, so that a half is of few large pieces."""

ROUNDING = 1e-10
"""The norm of a noise above which it is more than what rounding leaves."""

POWER = 3.0
"""Of the word's probability. Above one, halves that show what the word needs count for more."""

ROWS = 64
"""Captions that the decoder reads at a time; at 448 pixels they take some 100 MB."""


@torch.no_grad()
def sampled_effects(reading: Reading) -> Float[Tensor, "B N T L"]:
    """How much more probable the word is where a region is seen than where it is hidden.

    Half of the regions are hidden at a time, from the caption's first word on. It is the mean of
    the probability's cube with all halves that show the region, minus that with all that hide it.
    So the means are over what else is seen, as in RISE (Petsiuk et al. 2018, section 3), and count
    all ways from a region to the word: attention, the contexts of earlier words, and the initial
    state.

    Returns:
        Shares of the largest cube with any half. Zero at PAD and at words that no search generates.
    """
    halves = random_halves(reading.grid).to(reading.annotations.device)
    signs = torch.where(halves, 2.0, -2.0) / max(1, len(halves))
    found = []
    for image in range(len(reading.annotations)):
        log_probs = _with_each(halves, reading, image)
        largest = log_probs.amax(dim=0) if len(halves) else 0.0
        cubes = (POWER * (log_probs - largest)).exp()
        found.append(torch.einsum("hnt,hl->ntl", cubes, signs.to(cubes)))
    return torch.stack(found)


def _with_each(halves: Bool[Tensor, "H L"], reading: Reading, image: int) -> Float[Tensor, "H N T"]:
    """The log probabilities of a photo's words where each half alone is seen."""
    captions, read = reading.tokens.shape[1:]
    found = [reading.annotations.new_zeros(0, captions, read - 1)]
    for seen in halves.split(max(1, ROWS // captions)):
        rows = reading.repeated(image, len(seen))
        found.append(rows.word_log_probs(rows.annotations, seen))
    return torch.cat(found)


def random_halves(grid: tuple[int, int]) -> Bool[Tensor, "H L"]:
    """Random halves of the regions, each followed by the half that it leaves.

    A half is where smooth noise is below its median. Each noise is made orthogonal to those before
    it, so that no half repeats what others tell: the first halves are of few large pieces, and
    later ones of smaller ones. A noise of which nothing but rounding is left then is left out: a
    small grid has fewer pairs, and a single region none. All photos have the same halves, so that
    results can be repeated.
    """
    rows, columns = grid
    regions = rows * columns
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((PAIRS, 1, 1, regions)))
    for _ in range(SMOOTHINGS):
        noise = around_each(noise, grid)
    centred = noise[:, 0, 0] - noise[:, 0, 0].mean(dim=1, keepdim=True)
    orthogonal, left = torch.linalg.qr(centred.T)
    kept = orthogonal.T[left.diagonal().abs() > ROUNDING]
    half = kept.argsort(dim=1).argsort(dim=1) < regions // 2
    return torch.stack([half, ~half], dim=1).flatten(0, 1)
