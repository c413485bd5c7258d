"""Maps from the gradient of a word's log probability by the encoder's annotation vectors.

The gradient covers every path from a region to the word: the word's own context, the contexts of
earlier words and the initial state.

Shapes: B images, N captions per image, b captions at a time, L regions, D annotation width, T
words.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.maps.captioned import Captioned, Maps, shares, word_log_probs
from captioning.models import Model

AT_A_TIME = 16
"""Captions whose graphs are in memory at a time."""

Relevance = Callable[[Float[Tensor, "b L D"], Float[Tensor, "b L D"]], Float[Tensor, "b L"]]
"""The relevance of each region, from annotation vectors and a word's gradient by them."""


def gradient_map(captioned: Captioned) -> Maps:
    """Gradient x input at the annotation vectors, positive part (Shrikumar et al. 2016).

    To first order, what the word's log probability gains per relative growth of the region's
    vector. Cost: one pass over the caption, and one backward pass per word.
    """
    return _from_gradients(captioned, lambda vectors, gradients: (vectors * gradients).sum(dim=2))


def grad_cam(captioned: Captioned) -> Maps:
    """Grad-CAM at the annotation vectors (Selvaraju et al. 2017, eq. 1 and 2).

    Channels are weighted by their mean gradient over regions and summed, positive part. Cost: as
    `gradient_map`.
    """
    return _from_gradients(
        captioned,
        lambda vectors, gradients: torch.einsum("bld,bd->bl", vectors, gradients.mean(dim=1)),
    )


def _from_gradients(captioned: Captioned, relevance: Relevance) -> Maps:
    batch, captions = captioned.tokens.shape[:2]
    # Each caption gets an image of its own, so that gradients of captions do not add up.
    images = torch.arange(batch, device=captioned.tokens.device).repeat_interleave(captions)
    tokens = captioned.tokens.flatten(0, 1)
    found = [
        _of_words(captioned.model, captioned.annotations[image], part, relevance)
        for image, part in zip(images.split(AT_A_TIME), tokens.split(AT_A_TIME), strict=True)
    ]
    return shares(torch.cat(found).unflatten(0, (batch, captions)), captioned.grid)


@torch.enable_grad()  # also under a caller's no_grad
def _of_words(
    model: Model,
    annotations: Float[Tensor, "b L D"],
    tokens: Int[Tensor, "b S"],
    relevance: Relevance,
) -> Float[Tensor, "b T L"]:
    """The relevance of each region for each word of one caption per image."""
    vectors = annotations.detach()
    leaf = vectors.clone().requires_grad_()
    of_words = word_log_probs(model, leaf, tokens[:, None])[:, 0]  # (b, T)
    is_read = (tokens[:, 1:] != PAD).any(dim=0)
    found = []
    for of_word, is_word in zip(of_words.unbind(dim=1), is_read, strict=True):
        if not is_word:
            found.append(torch.zeros_like(vectors[..., 0]))
            continue
        # Images do not depend on each other, so the gradient of the sum is each one's own.
        [gradient] = torch.autograd.grad(
            of_word.sum(), leaf, retain_graph=True, materialize_grads=True
        )
        found.append(relevance(vectors, gradient))
    return torch.stack(found, dim=1)
