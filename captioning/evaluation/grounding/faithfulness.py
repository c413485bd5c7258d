"""Faithfulness of a map: how a word's probability changes when regions are hidden or shown.

Two measures: the drop without the most relevant regions, and the deletion and insertion curves of
Petsiuk et al. 2018 ("RISE: Randomized Input Sampling for Explanation of Black-box Models"), with
regions instead of pixels. Regions are hidden from the caption's first word on, so that the
decoder's state contains nothing of them.

Shapes: C captions, each with its image, L regions, S tokens with BOS, T = S - 1 words, V
vocabulary, P spans of words, K sets of visible regions, R rows of a batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.evaluation.grounding.targets import DROPS, FAITHFULNESS, gaussian, score_name
from captioning.maps import CaptionedBatch
from captioning.search.search import NEVER

HIDDEN = 0.5
"""Minimum share of the map in the hidden regions."""

DRAWS = 3
"""Number of random sets of regions that are hidden for each span."""

LEVELS = 6
"""A curve hides the shares 0, 1/6, ..., 5/6 of the regions, or shows 1/6, ..., 1."""

ROWS = 128
"""Batch size, in spans with hidden regions; a batch takes about 100 MB."""


class Span(NamedTuple):
    """Successive words of one caption of a batch."""

    caption: int  # its row in the batch
    start: int
    stop: int  # after the last word


@dataclass(frozen=True)
class SpanReader:
    """Computes the probabilities of spans with only some of the regions visible.

    Attributes:
        model: maps annotations, tokens and mask to logits and weights.
        annotations: of the image of each caption.
        tokens: the captions from BOS on, padded with PAD.
        spans: words of the captions.
    """

    model: nn.Module
    annotations: Float[Tensor, "C L D"]
    tokens: Int[Tensor, "C S"]
    spans: Sequence[Span]

    def probabilities(self, visible: Bool[Tensor, "P K L"]) -> Float[Tensor, "P K"]:
        """Compute the joint probability of each span's words, given the words before it.

        Args:
            visible: True where a region may be attended, in K variants for each span.
        """
        rows = torch.tensor(self.spans, device=self.tokens.device)
        rows = rows.repeat_interleave(visible.shape[1], dim=0)
        masks = visible.flatten(0, 1)
        probabilities = [
            self._batch_probabilities(spans, mask)
            for spans, mask in zip(rows.split(ROWS), masks.split(ROWS), strict=True)
        ]
        return torch.cat(probabilities).view(visible.shape[:2])

    def _batch_probabilities(
        self, spans: Int[Tensor, "R 3"], mask: Bool[Tensor, "R L"]
    ) -> Float[Tensor, " R"]:
        captions, starts, stops = spans.T
        positions = torch.arange(self.tokens.shape[1] - 1, device=self.tokens.device)
        inputs = self.tokens[captions, :-1].masked_fill(positions >= stops[:, None], PAD)
        is_in_span = (positions >= starts[:, None]) & (positions < stops[:, None])
        row, position = is_in_span.nonzero().T
        # The logits of all words, (R, 1, T, V), are freed at once.
        logits = self.model(self.annotations[captions], inputs[:, None], mask)[0][row, 0, position]
        logits = logits.double()
        logits[:, list(NEVER)] = float("-inf")
        words = self.tokens[captions[row], position + 1]
        log_probs = logits.log_softmax(dim=-1).gather(1, words[:, None])[:, 0]
        return log_probs.new_zeros(len(spans)).index_add(0, row, log_probs).exp()


def occlusion_drops(
    reader: SpanReader,
    weights: Float[Tensor, "P L"],
    *,
    grid: tuple[int, int],
    noise: Float[Tensor, "P DRAWS L"],
) -> dict[str, Float[Tensor, " P"]]:
    """Compute each span's probability, and its drop when regions are hidden.

    The regions of a map that are hidden are the fewest most relevant ones that hold `HIDDEN` of
    it. Two baselines are a Gaussian in the middle, in place of the map, and equally many random
    regions.

    Args:
        reader: reads the spans.
        weights: the map of each span.
        grid: rows and columns of the regions.
        noise: of each span and draw; the regions with the least noise are hidden.

    Returns:
        The values by the names in `DROPS`.
    """
    most_relevant = _most_relevant(weights)
    middle = _most_relevant(torch.from_numpy(gaussian(grid)).flatten().to(weights)[None])
    rank = noise.argsort(dim=2).argsort(dim=2).to(most_relevant.device)
    random = rank < most_relevant.sum(dim=1)[:, None, None]
    fixed = [torch.zeros_like(most_relevant), most_relevant, middle.expand_as(most_relevant)]
    hidden = torch.cat([torch.stack(fixed, dim=1), random], dim=1)  # (P, 3 + DRAWS, L)
    unoccluded, occluded, centred, *draws = reader.probabilities(~hidden).unbind(dim=1)
    drops = (
        unoccluded - occluded,
        unoccluded - torch.stack(draws).mean(dim=0),
        unoccluded - centred,
    )
    return dict(zip(DROPS, (unoccluded, *drops), strict=True))


def _most_relevant(weights: Float[Tensor, "P L"]) -> Bool[Tensor, "P L"]:
    """Select the fewest regions that hold `HIDDEN` of the map in total, but never all regions."""
    sorted_weights, order = weights.sort(dim=1, descending=True, stable=True)
    selected = sorted_weights.cumsum(dim=1) - sorted_weights < HIDDEN
    selected[:, -1] = False
    return torch.zeros_like(selected).scatter(1, order, selected)


def curve_areas(
    reader: SpanReader, maps: Mapping[str, Float[Tensor, "P L"]]
) -> dict[str, Float[Tensor, " P"]]:
    """Compute the areas under the curves of each span's probability, over a width of 1.

    Deletion hides regions, the most relevant first; low is good. Insertion shows them, the most
    relevant first; high is good. Overall is insertion minus deletion (Zhang et al. 2021,
    "Group-CAM"). Equally relevant regions are in reading order.

    Returns:
        The areas by the `score_name` of each of `FAITHFULNESS` and each source of a map.
    """
    rank = torch.stack([*maps.values()], dim=1).argsort(dim=2, descending=True, stable=True)
    rank, regions = rank.argsort(dim=2), rank.shape[2]
    counts = [max(1, min(round(regions * i / LEVELS), regions)) for i in range(1, LEVELS + 1)]
    inserted = torch.stack([rank < count for count in counts], dim=2)  # (P, sources, LEVELS, L)
    # Deletion leaves at least one region, which attention needs.
    remaining = torch.stack([rank >= min(count, regions - 1) for count in counts[:-1]], dim=2)
    visible = torch.cat([inserted[:, :, -1:], remaining, inserted[:, :, :-1]], dim=2)
    probabilities = reader.probabilities(visible.flatten(1, 2)).view(visible.shape[:3])
    deletion = probabilities[..., :LEVELS]
    insertion = torch.cat([probabilities[..., LEVELS:], probabilities[..., :1]], dim=2)
    curves = torch.stack([deletion, insertion], dim=2)
    areas = torch.trapezoid(curves, dim=3) / (LEVELS - 1)  # (P, sources, 2)
    overall = areas[..., 1:] - areas[..., :1]
    columns = torch.cat([areas, overall], dim=2).flatten(1).unbind(dim=1)
    names = [score_name(measure, source) for source in maps for measure in FAITHFULNESS]
    return dict(zip(names, columns, strict=True))


@torch.no_grad()
def faithfulness(
    batch: CaptionedBatch,
    spans: Sequence[Span],
    maps: Mapping[str, Float[np.ndarray, "P rows columns"]],
    *,
    noise_generator: torch.Generator,
    order_generator: torch.Generator | None = None,
) -> dict[str, list[dict[str, float]]]:
    """Compute the drops, and the areas under the curves, of each span by the name of its map.

    Args:
        batch: images with captions.
        spans: words of the captions.
        maps: of each span, by name.
        noise_generator: draws the random regions of `occlusion_drops`.
        order_generator: draws the random map of `curve_areas`; None for no curves.
    """
    annotations = batch.annotations.repeat_interleave(batch.tokens.shape[1], dim=0)
    tokens = batch.tokens.flatten(0, 1)
    reader = SpanReader(batch.model, annotations, tokens, spans)
    shape = len(spans), prod(batch.grid)
    noise = torch.rand(shape[0], DRAWS, shape[1], generator=noise_generator)
    baseline_areas = {}
    if order_generator is not None:
        middle = torch.from_numpy(gaussian(batch.grid)).flatten().expand(shape)
        order = torch.rand(shape, generator=order_generator, dtype=middle.dtype)
        baselines = {"Gaussian": middle.to(tokens.device), "random": order.to(tokens.device)}
        baseline_areas = curve_areas(reader, baselines)
    values = {}
    for name, span_maps in maps.items():
        weights = torch.from_numpy(span_maps).flatten(1).to(annotations)
        columns = occlusion_drops(reader, weights, grid=batch.grid, noise=noise)
        if order_generator is not None:
            columns |= curve_areas(reader, {"model": weights}) | baseline_areas
        rows = torch.stack([*columns.values()], dim=1).tolist()
        values[name] = [dict(zip(columns, row, strict=True)) for row in rows]
    return values
