"""Maps from the log probability of a word: its gradient, and its drop if regions are hidden.

Shapes: B images, N captions per image, b captions at a time, L regions (rows x columns), D
annotation width, S tokens from BOS to EOS, T = S - 1 predicted words, W windows.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.maps.captioned import NEIGHBOURHOOD, CaptionedBatch, Maps, shares
from captioning.models import Model
from captioning.search.search import token_log_probs

CAPTIONS_PER_PASS = 16
"""Captions per pass, if their graphs are kept or regions are hidden."""


def gradient_map(batch: CaptionedBatch) -> Maps:
    """Compute the positive part of gradient x input at the annotations (Shrikumar et al. 2016).

    To first order, it is the gain of the word's log probability per relative growth of the region's
    vector. Cost: one pass over the caption, and one backward pass per word.
    """
    return _from_gradients(batch, lambda vectors, gradients: (vectors * gradients).sum(dim=2))


def grad_cam(batch: CaptionedBatch) -> Maps:
    """Compute Grad-CAM at the annotation vectors (Selvaraju et al. 2017, eq. 1 and 2).

    It is the positive part of the sum of channels, weighted by their mean gradient over regions.
    Cost: as `gradient_map`.
    """
    return _from_gradients(
        batch,
        lambda vectors, gradients: torch.einsum("bld,bd->bl", vectors, gradients.mean(dim=1)),
    )


@torch.enable_grad()  # also under a caller's no_grad
def _from_gradients(
    batch: CaptionedBatch,
    relevance: Callable[[Float[Tensor, "b L D"], Float[Tensor, "b L D"]], Float[Tensor, "b L"]],
) -> Maps:
    """Compute a map from each word's gradient with respect to the annotation vectors.

    The gradient covers every path from a region to the word: the context of the word, the contexts
    of earlier words and the initial state.

    Args:
        batch: images with captions.
        relevance: maps annotation vectors and gradients to the relevance of regions.
    """
    image_count, caption_count = batch.tokens.shape[:2]
    # Each caption gets a copy of its image, so that gradients of captions do not add up.
    images = torch.arange(image_count, device=batch.tokens.device).repeat_interleave(caption_count)
    captions = batch.tokens.flatten(0, 1)
    relevances = []
    for image, tokens in zip(
        images.split(CAPTIONS_PER_PASS), captions.split(CAPTIONS_PER_PASS), strict=True
    ):
        vectors = batch.annotations[image].detach()
        leaf = vectors.clone().requires_grad_()
        log_probs = word_log_probs(batch.model, leaf, tokens[:, None])[:, 0]  # (b, T)
        word_relevances = []
        for log_prob, words in zip(log_probs.unbind(1), tokens[:, 1:].unbind(1), strict=True):
            gradient = torch.zeros_like(vectors)
            if (words != PAD).any():
                # Images are independent, so the gradient of the sum has each image's gradient.
                [gradient] = torch.autograd.grad(
                    log_prob.sum(), leaf, retain_graph=True, materialize_grads=True
                )
            word_relevances.append(relevance(vectors, gradient))
        relevances.append(torch.stack(word_relevances, dim=1))
    by_caption = torch.cat(relevances).unflatten(0, (image_count, caption_count))
    return shares(by_caption, batch.grid)


@torch.no_grad()
def occlusion_map(batch: CaptionedBatch) -> Maps:
    """Compute the drop of the word's log probability if the 3 x 3 regions around each are hidden.

    Zeiler and Fergus 2014, with annotation vectors in place of pixels. Regions are hidden from the
    caption's first word on, so that the decoder's state contains nothing of them. Rises count as 0.
    Cost: L + 1 passes over the caption.
    """
    model, annotations, tokens = batch.model, batch.annotations, batch.tokens
    log_probs = word_log_probs(model, annotations, tokens)
    windows_per_pass = max(1, CAPTIONS_PER_PASS // tokens[..., 0].numel())
    occluded_log_probs = []
    for hidden in windows(batch.grid).to(annotations.device).split(windows_per_pass):
        count = len(hidden)  # each window hides regions of a copy of the images
        copies, mask = annotations.repeat(count, 1, 1), (~hidden).repeat_interleave(len(tokens), 0)
        occluded = word_log_probs(model, copies, tokens.repeat(count, 1, 1), mask=mask)
        occluded_log_probs.append(occluded.unflatten(0, (count, len(tokens))))
    drops = log_probs[..., None] - torch.cat(occluded_log_probs).movedim(0, -1)
    return shares(drops, batch.grid)


def windows(grid: tuple[int, int]) -> Bool[Tensor, "W L"]:
    """Return the regions to hide around each region; neighbours only along sides of more than 3."""
    is_neighbour_row, is_neighbour_column = map(_neighbours, grid)
    is_neighbour = is_neighbour_row[:, None, :, None] & is_neighbour_column[None, :, None, :]
    hidden = is_neighbour.flatten(2).flatten(0, 1)
    return hidden & ~hidden.all(dim=1, keepdim=True)  # never hide all regions


def _neighbours(cells: int) -> Bool[Tensor, "cells cells"]:
    """Return which cells along a side are in the neighbourhood of each cell."""
    indices = torch.arange(cells)
    distance = NEIGHBOURHOOD // 2 if cells > NEIGHBOURHOOD else 0
    return (indices[:, None] - indices).abs() <= distance


def word_log_probs(
    model: Model,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    *,
    mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B N T"]:
    """Compute the log probability of each word given the words before it, as a search does.

    It is 0 at PAD and at words that cannot be generated, such as unknown ones.

    Args:
        model: the plain model.
        annotations: the output of `model.encode`.
        tokens: the captions from BOS to EOS, then PAD.
        mask: True where a region may be attended; None where all may.
    """
    memory = model.remember(annotations, mask)
    logits, _ = model.decoder.teacher_forcing(memory, tokens[..., :-1])
    log_probs = token_log_probs(logits, tokens[..., 1:])
    return torch.where(log_probs.isfinite(), log_probs, 0.0)
