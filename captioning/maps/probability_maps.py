"""Maps from the log probability of a word: its gradient, and its drop if regions are hidden.

Shapes: B images, N captions per image, b captions at a time, L regions (rows x columns), D
annotation width, S tokens from BOS to EOS, T = S - 1 predicted words, W windows.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.maps.captioned import SIDE, Captioned, Maps, shares
from captioning.models import Model
from captioning.search.search import generable_log_probs

AT_A_TIME = 16
"""Captions that are read at a time, if they keep graphs or each stands for a hidden region."""


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


@torch.enable_grad()  # also under a caller's no_grad
def _from_gradients(
    captioned: Captioned,
    relevance: Callable[[Float[Tensor, "b L D"], Float[Tensor, "b L D"]], Float[Tensor, "b L"]],
) -> Maps:
    """Shares of the relevance of regions, from their vectors and a word's gradient by these.

    The gradient covers every path from a region to the word: the word's own context, the contexts
    of earlier words and the initial state.
    """
    batch, captions = captioned.tokens.shape[:2]
    # Each caption gets an image of its own, so that gradients of captions do not add up.
    images = torch.arange(batch, device=captioned.tokens.device).repeat_interleave(captions)
    parts = captioned.tokens.flatten(0, 1).split(AT_A_TIME)
    found = []
    for image, tokens in zip(images.split(AT_A_TIME), parts, strict=True):
        vectors = captioned.annotations[image].detach()
        leaf = vectors.clone().requires_grad_()
        log_probs = word_log_probs(captioned.model, leaf, tokens[:, None])[:, 0]  # (b, T)
        of_words = []
        for log_prob, words in zip(log_probs.unbind(1), tokens[:, 1:].unbind(1), strict=True):
            gradient = torch.zeros_like(vectors)
            if (words != PAD).any():
                # Images do not depend on each other: the gradient of the sum is each one's own.
                [gradient] = torch.autograd.grad(
                    log_prob.sum(), leaf, retain_graph=True, materialize_grads=True
                )
            of_words.append(relevance(vectors, gradient))
        found.append(torch.stack(of_words, dim=1))
    return shares(torch.cat(found).unflatten(0, (batch, captions)), captioned.grid)


@torch.no_grad()
def occlusion_map(captioned: Captioned) -> Maps:
    """The drop of the word's log probability if the 3 x 3 regions around each region are hidden.

    Zeiler and Fergus 2014, with annotation vectors in place of pixels. Regions are hidden from the
    first word of the caption on, so the state of the decoder knows nothing of them. Rises count as
    zero. Cost: L + 1 passes over the caption.
    """
    model, annotations, tokens = captioned.model, captioned.annotations, captioned.tokens
    whole = word_log_probs(model, annotations, tokens)
    at_a_time = max(1, AT_A_TIME // tokens[..., 0].numel())
    hidden = []
    for part in windows(captioned.grid).to(annotations.device).split(at_a_time):
        count = len(part)  # each window hides regions of a copy of the images
        copies, mask = annotations.repeat(count, 1, 1), (~part).repeat_interleave(len(tokens), 0)
        log_probs = word_log_probs(model, copies, tokens.repeat(count, 1, 1), mask)
        hidden.append(log_probs.unflatten(0, (count, len(tokens))))
    return shares(whole[..., None] - torch.cat(hidden).movedim(0, -1), captioned.grid)


def windows(grid: tuple[int, int]) -> Bool[Tensor, "W L"]:
    """For each region, the regions to hide: itself and, on grids larger than 3, its neighbours."""
    rows, columns = (torch.arange(cells) for cells in grid)
    tall, wide = (SIDE // 2 if cells > SIDE else 0 for cells in grid)
    near_rows = (rows[:, None] - rows).abs() <= tall
    near_columns = (columns[:, None] - columns).abs() <= wide
    near = near_rows[:, None, :, None] & near_columns[None, :, None, :]
    found = near.reshape(len(rows) * len(columns), -1)
    return found & ~found.all(dim=1, keepdim=True)  # never hide all regions


def word_log_probs(
    model: Model,
    annotations: Float[Tensor, "B L D"],
    tokens: Int[Tensor, "B N S"],
    mask: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B N T"]:
    """The log probability of each word given the words before it, normalised as in a search.

    Zero at PAD and at words that cannot be generated, such as unknown ones.

    Args:
        model: reads the captions.
        annotations: by `model.encode`.
        tokens: the captions from BOS to EOS, then PAD.
        mask: True where a region may be attended; None where all may.
    """
    memory = model.remember(annotations, mask)
    logits, _ = model.decoder.teacher_forcing(memory, tokens[..., :-1])
    words = tokens[..., 1:]
    log_probs = generable_log_probs(logits).gather(-1, words[..., None])[..., 0]
    return torch.where((words != PAD) & log_probs.isfinite(), log_probs, 0.0)
