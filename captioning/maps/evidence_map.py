"""Evidence: how much each region's vector alone speaks for a word, through the deep output.

Shapes: B images, N captions per image, L regions (rows x columns), T words, m width of a word
embedding.
"""

from typing import TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.attention_maps import attention_map
from captioning.maps.captioned import SIDE, Captioned, Maps, shares
from captioning.models import Decoder, LSTMDecoder

SHARPNESS = 4.0
"""Factor of the evidence, in nats, before the softmax."""


@torch.no_grad()
def evidence_map(captioned: Captioned) -> Maps:
    """The softmax over regions of the evidence for each word (Xu et al. 2015, eq. 7).

    It depends on the word and the image, not on the words before. Each region has the mean
    evidence of its neighbourhood, since single cells are noisy. Cost: no pass over the caption.
    """
    model = captioned.model
    assert has_evidence(model.decoder)
    regions = model.decoder.output_context(captioned.regions)
    of_words = evidence(model.decoder, regions, captioned.tokens[..., 1:])
    return evidence_shares(of_words, captioned.grid).unflatten(-1, captioned.grid)


@torch.no_grad()
def attention_evidence_map(captioned: Captioned) -> Maps:
    """Attention times evidence, normalised.

    By Bayes' rule: if attention is the probability of a region before the word is known, and the
    evidence map is proportional to the word's probability given the region, their product is
    proportional to the region's probability given the word. Cost: one pass over the caption.
    """
    weights = attention_map(captioned) * evidence_map(captioned)
    return shares(weights.flatten(-2), captioned.grid)


def has_evidence(decoder: Decoder) -> TypeGuard[LSTMDecoder]:
    """Whether a decoder scores words by a deep output, as `evidence` needs."""
    return isinstance(decoder, LSTMDecoder) and decoder.deep_output


def evidence(
    decoder: LSTMDecoder, regions: Float[Tensor, "B L m"], words: Int[Tensor, "#B N T"]
) -> Float[Tensor, "B N T L"]:
    """The part of the deep output that depends on the context: L_o L_z a of each region, in nats.

    Eq. 7 is linear in the context, so this is what a region would add to the word's logit if the
    context were its vector alone and the gate beta one. The word's row of L_o is taken relative to
    the mean row: what a region adds to all words alike changes no probability.

    Args:
        decoder: one that `has_evidence`.
        regions: L_z a, its `output_context` of each annotation vector.
        words: words that are the same for all images are given once, which takes less time and
            memory.
    """
    weight = decoder.output.weight
    rows = weight[words] - weight.mean(dim=0)  # (B, N, T, m)
    return torch.einsum("bntm,blm->bntl", rows, regions)


def evidence_shares(
    evidence: Float[Tensor, "B N T L"], grid: tuple[int, int]
) -> Float[Tensor, "B N T L"]:
    """The softmax of `SHARPNESS` times the mean evidence of each region and those around it.

    Along a side of at most `SIDE` regions, each stands alone.
    """
    sides = [SIDE if cells > SIDE else 1 for cells in grid]
    means = F.avg_pool2d(
        evidence.flatten(0, 2).unflatten(1, (1, *grid)),
        sides,
        stride=1,
        padding=[side // 2 for side in sides],
        count_include_pad=False,  # at the edge of the image there are fewer neighbours
    )
    return (SHARPNESS * means.view(evidence.shape)).softmax(dim=-1)
