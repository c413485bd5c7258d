"""Maps made of the gradient of a word's log probability.

The gradient counts all ways from a region to the word: contexts of earlier words and the initial
state as well as the word's own context.

Shapes: B images, N captions per image, b captions at a time, L regions, D annotation width, T
words, C channels of a finer feature map.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.errors import InputError
from captioning.maps.feature_map import finer_feature_map
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap, shares

AT_A_TIME = 16
"""Captions whose computation is in memory at a time; of an encoder's finer stages, some 200 MB."""

Relevance = Callable[[Float[Tensor, "b L D"], Float[Tensor, "b L D"]], Float[Tensor, "b L"]]
"""The relevance of each region, from the regions' vectors and a word's gradient by them."""

Scores = Callable[[Reading, Float[Tensor, "b L D"]], Float[Tensor, "b 1 T"]]
"""A score of each word of a reading, from annotation vectors, such as its log probability."""


class GradientMap(WordMap):
    """Gradient x input at the annotation vectors, its positive part (Shrikumar et al. 2016)."""

    def __call__(self, reading: Reading) -> Maps:
        """The positive part of each annotation vector times its gradient."""
        return at_annotations(reading, gradient_times_input)


class GradCAM(WordMap):
    """Grad-CAM at the annotation vectors (Selvaraju et al. 2017, eq. 1 and 2)."""

    def __call__(self, reading: Reading) -> Maps:
        """The positive part of the channels' weighted sum."""
        return at_annotations(reading, _weighted_channels)


class FineGradCAM(WordMap):
    """Grad-CAM at the encoder's last feature map that is finer than the attention's grid."""

    def __call__(self, reading: Reading) -> Maps:
        """The positive part of the channels' weighted sum, on the finer grid."""
        reading.need_one_grid()
        found = []
        for part in reading.one_by_one(AT_A_TIME):
            feature, annotations = finer_feature_map(part.encoder, part.images, part.grid)
            relevance = _of_words(part, annotations, feature, _weighted_channels)
            found.append(shares(relevance, (feature.shape[2], feature.shape[3])))
        return torch.cat(found).unflatten(0, reading.tokens.shape[:2])


def at_annotations(
    reading: Reading, relevance: Relevance, scores: Scores = Reading.word_log_probs
) -> Maps:
    """Maps made of the gradients by the annotation vectors.

    Args:
        reading: the captions.
        relevance: made of vectors and gradients.
        scores: what gradients are taken of.
    """
    reading.need_one_grid()
    found = []
    for part in reading.one_by_one(AT_A_TIME):
        leaf = part.annotations.detach().clone().requires_grad_()
        found.append(shares(_of_words(part, leaf, leaf, relevance, scores), reading.grid))
    return torch.cat(found).unflatten(0, reading.tokens.shape[:2])


def _of_words(
    reading: Reading,
    annotations: Float[Tensor, "b L D"],
    leaf: Float[Tensor, "b _ _"] | Float[Tensor, "b C rows columns"],
    relevance: Relevance,
    scores: Scores = Reading.word_log_probs,
) -> Float[Tensor, "b T cells"]:
    """The relevance of each region, or of each cell of a feature map, for each word.

    Args:
        reading: of one caption per image.
        annotations: computed from the leaf, or the leaf itself.
        leaf: what gradients are taken by: regions' vectors, or a feature map.
        relevance: made of vectors and gradients.
        scores: what gradients are taken of.

    Raises:
        InputError: the decoder gives no gradient.
    """
    vectors = _vectors(leaf.detach())
    found = []
    with torch.enable_grad():  # whatever the caller wants
        of_words = scores(reading, annotations)[:, 0]  # (b, T)
        if not of_words.requires_grad:
            raise InputError("this decoder gives no gradient; choose attention or occlusion")
        # No word of an image depends on another image, so the sum's gradient is each one's own.
        for of_word, is_read in zip(
            of_words.unbind(dim=1), reading.is_word.any(dim=0), strict=True
        ):
            if not is_read:
                found.append(torch.zeros_like(vectors[..., 0]))
                continue
            [gradient] = torch.autograd.grad(
                of_word.sum(), leaf, retain_graph=True, materialize_grads=True
            )
            found.append(relevance(vectors, _vectors(gradient)))
    return torch.stack(found, dim=1)


def _vectors(
    leaf: Float[Tensor, "b _ _"] | Float[Tensor, "b C rows columns"],
) -> Float[Tensor, "b L D"]:
    """A feature map as a vector for each of its cells; vectors as they are."""
    return leaf.flatten(2).transpose(1, 2) if leaf.ndim == 4 else leaf


def gradient_times_input(
    vectors: Float[Tensor, "b L D"], gradients: Float[Tensor, "b L D"]
) -> Float[Tensor, "b L"]:
    """Each vector times its gradient, summed over channels."""
    return (vectors * gradients).sum(dim=2)


def _weighted_channels(
    vectors: Float[Tensor, "b L D"], gradients: Float[Tensor, "b L D"]
) -> Float[Tensor, "b L"]:
    """Each region's sum over channels, weighted by the channels' mean gradients over regions."""
    return torch.einsum("bld,bd->bl", vectors, gradients.mean(dim=1))
