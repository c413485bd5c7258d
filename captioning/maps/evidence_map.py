"""Maps made of what each region's vector alone says for a word.

Shapes: B images, N captions per image, L regions (rows x columns), T words.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.reading import Reading
from captioning.maps.windows import SIDE
from captioning.maps.word_map import Maps, WordMap, shares
from captioning.models.decoder import Memory

SHARPNESS = 4.0
"""What the evidence, in nats, is multiplied by before the softmax; it moves no maximum."""


class EvidenceMap(WordMap):
    """What a region alone would add to the word's score through the deep output (eq. 7).

    Attention is chosen before the word is known, and the hidden state adds to the score whatever it
    has seen before. The deep output alone ties a word to the vector of a region. Each region has
    the mean of the evidence around it: neighbours see much the same of the photo, and single cells
    are noisy. A softmax makes shares of it.
    """

    takes_one_pass = True
    needs_evidence = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The softmax over regions of the evidence for each word."""
        reading.need_one_grid()
        memory = reading.decoder.remember(reading.annotations)
        return of_reading(reading, memory).unflatten(-1, reading.grid)


class AttentionEvidenceMap(WordMap):
    """Attention times evidence: where the model looked, weighed by what the word says of it.

    By Bayes' rule, if attention is the probability of a region before the word is known, and the
    map of evidence in proportion to the word's probability given the region, their product is in
    proportion to the region's probability given the word.
    """

    takes_one_pass = True
    needs_evidence = True

    @torch.no_grad()
    def __call__(self, reading: Reading) -> Maps:
        """The product, as shares."""
        reading.need_one_grid()
        memory = reading.decoder.remember(reading.annotations)
        _, weights = reading.decoder.teacher_forcing(memory, reading.tokens[..., :-1])
        return shares(weights * of_reading(reading, memory), reading.grid)


def of_reading(reading: Reading, memory: Memory) -> Float[Tensor, "B N T L"]:
    """The shares of evidence of every word that is read, by what the decoder remembers."""
    evidence = reading.decoder.evidence(memory, reading.tokens[..., 1:])
    return evidence_shares(evidence, reading.grid)


def evidence_shares(
    evidence: Float[Tensor, "B N T L"], grid: tuple[int, int], sharpness: float = SHARPNESS
) -> Float[Tensor, "B N T L"]:
    """The mean around each region, as shares of a softmax.

    Args:
        evidence: in nats.
        grid: rows and columns of the regions.
        sharpness: what the mean is multiplied by before the softmax.
    """
    return (sharpness * around_each(evidence, grid)).softmax(dim=-1)


def around_each(
    evidence: Float[Tensor, "B N T L"], grid: tuple[int, int]
) -> Float[Tensor, "B N T L"]:
    """The mean over the regions around each one, itself among them.

    Args:
        evidence: of each region.
        grid: rows and columns of the regions; along a side of three or fewer each stands alone.
    """
    sides = [SIDE if cells > SIDE else 1 for cells in grid]
    means = F.avg_pool2d(
        evidence.flatten(0, 2).unflatten(1, (1, *grid)),
        sides,
        stride=1,
        padding=[side // 2 for side in sides],
        count_include_pad=False,  # at the edge of the photo there are fewer
    )
    return means.view(evidence.shape)
