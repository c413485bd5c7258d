"""Evidence: what each region's vector alone adds to a word's logit through the deep output.

Shapes: B images, N captions per image, L regions (rows x columns), T words, m width of a word
embedding.
"""

from typing import TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.captioned import NEIGHBOURHOOD, CaptionedBatch, Maps, shares
from captioning.models import Decoder, LSTMDecoder

SHARPNESS = 4.0
"""Factor of the evidence, in nats, before the softmax."""

ENLARGEMENT = 2
"""How many times as large the sides of an image are for `attention_fine_evidence_map`."""


@torch.no_grad()
def evidence_map(batch: CaptionedBatch) -> Maps:
    """Compute the softmax over regions of the evidence for each word (Xu et al. 2015, eq. 7).

    It depends on the word and the image, not on the words before. Evidence is averaged over the
    neighbourhood of each region. Cost: no pass over the caption.
    """
    decoder = batch.model.decoder
    assert has_evidence(decoder)
    contexts = decoder.output_context(batch.adapted)
    region_shares = evidence_shares(evidence(decoder, contexts, batch.tokens[..., 1:]), batch.grid)
    return region_shares.unflatten(-1, batch.grid)


@torch.no_grad()
def attention_evidence_map(batch: CaptionedBatch) -> Maps:
    """Multiply attention and evidence, and normalise.

    By Bayes' rule: if attention is the probability of a region before the word is known, and the
    evidence map is proportional to the word's probability given the region, their product is
    proportional to the region's probability given the word. Cost: one pass over the caption.
    """
    return shares(batch.attention * evidence_map(batch).flatten(-2), batch.grid)


@torch.no_grad()
def attention_fine_evidence_map(batch: CaptionedBatch) -> Maps:
    """Multiply attention by the evidence of the images at two sizes, and normalise.

    A region of an image that is enlarged to twice its size is a quarter as large, so that smaller
    things fill it. Evidence there is averaged over the neighbourhood of each small region, then
    over the small regions in each region of the image, and then with the evidence of the image
    itself, from which the caption was written, as was the attention. Cost: one pass over the
    caption, and an encoding of an image with four times the pixels.
    """
    decoder, words = batch.model.decoder, batch.tokens[..., 1:]
    assert has_evidence(decoder)
    word_evidence = evidence(decoder, decoder.output_context(batch.adapted), words)
    means = neighbourhood_means(word_evidence, batch.grid)
    height, width = (ENLARGEMENT * side for side in batch.images.shape[2:])
    enlarged = F.interpolate(batch.images.float(), size=(height, width), mode="bilinear")
    contexts = decoder.output_context(batch.adapted_vectors(enlarged.round().to(torch.uint8)))
    small_grid = batch.model.encoder.grid(height, width)
    small_means = neighbourhood_means(evidence(decoder, contexts, words), small_grid)
    fine_means = F.adaptive_avg_pool2d(
        small_means.unflatten(-1, small_grid).flatten(0, 1), batch.grid
    )
    means = (means + fine_means.view(means.shape)) / 2
    return shares(batch.attention * (SHARPNESS * means).softmax(dim=-1), batch.grid)


def has_evidence(decoder: Decoder) -> TypeGuard[LSTMDecoder]:
    """Return whether a decoder has a deep output, which `evidence` needs."""
    return isinstance(decoder, LSTMDecoder) and decoder.deep_output


def evidence(
    decoder: LSTMDecoder, contexts: Float[Tensor, "B L m"], words: Int[Tensor, "#B N T"]
) -> Float[Tensor, "B N T L"]:
    """Compute the context's part of the deep output, L_o L_z a of each region, in nats.

    Eq. 7 is linear in the context, so this is what a region would add to the word's logit if the
    context were its vector alone and the gate beta were 1. The mean row of L_o is subtracted from
    the word's row: what a region adds to all words alike does not change their probabilities.

    Args:
        decoder: one for which `has_evidence` is true.
        contexts: L_z a, the decoder's `output_context` of each annotation vector.
        words: word ids; a first dimension of size 1 is broadcast, which takes less time and memory.
    """
    weight = decoder.output.weight
    rows = weight[words] - weight.mean(dim=0)  # (B, N, T, m)
    return torch.einsum("bntm,blm->bntl", rows, contexts)


def evidence_shares(
    evidence: Float[Tensor, "B N T L"], grid: tuple[int, int]
) -> Float[Tensor, "B N T L"]:
    """Compute the softmax of `SHARPNESS` times the mean evidence in each region's neighbourhood."""
    return (SHARPNESS * neighbourhood_means(evidence, grid)).softmax(dim=-1)


def neighbourhood_means(
    evidence: Float[Tensor, "B N T L"], grid: tuple[int, int]
) -> Float[Tensor, "B N T L"]:
    """Average evidence over the neighbourhood of each region, since single cells are noisy.

    Along a side of at most `NEIGHBOURHOOD` regions, a neighbourhood is a single region.
    """
    sides = [NEIGHBOURHOOD if cells > NEIGHBOURHOOD else 1 for cells in grid]
    means = F.avg_pool2d(
        evidence.flatten(0, 2).unflatten(1, (1, *grid)),
        sides,
        stride=1,
        padding=[side // 2 for side in sides],
        count_include_pad=False,  # at the edge of the image there are fewer neighbours
    )
    return means.view(evidence.shape)
