"""A map of the regions that decide for a word: the most faithful one, and slow.

Shapes: B images, N captions per image, L regions (rows x columns), T words, H halves of the image.
"""

import copy

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from captioning.maps.captioned import Captioned, Maps, neighbourhood_mean, word_log_probs
from captioning.maps.evidence_map import evidence, has_evidence
from captioning.models.attention import Attended
from captioning.search.search import generable_log_probs

EARLIER = 0.5  # weight of earlier words' contexts in context evidence; the word's own has one
EFFECT, LOG_ATTENTION = 0.3, 0.18  # weights of sampled effect and log attention in choice
FLATTENING = 0.8  # power of the other words' probabilities: unlikely words count more
THRESHOLD, BEND, POWER = 1.0, 80.0, 0.25  # of choice, in standard deviations; of its softplus
STRENGTH = 0.5  # factor of strength before it is exponentiated
PAIRS, SMOOTHINGS = 32, 4  # most pairs of random halves; passes of 3 x 3 means over their noise
EFFECT_POWER = 3.0  # of the word's probability: halves that show what it needs count more
ROWS = 64  # captions that the decoder reads at a time


@torch.no_grad()
def standout_map(captioned: Captioned) -> Maps:
    """The regions that decide for the word, each by how strongly it speaks for it.

    *Choice* asks whether the word depends on the region: context evidence, plus some of the
    sampled effect and of log attention. *Strength* asks whether the region is the object itself:
    mean evidence around it, plus log attention. Each is a standard score over the regions. A region
    stands out if its choice is above `THRESHOLD`; its share is proportional to the fourth root of
    the excess (a softplus, which keeps the order of the others) times exp(strength / 2).
    Cost: one pass over the caption, one backward pass per word, and up to 64 passes.
    """
    grid = captioned.grid
    memory = captioned.model.remember(captioned.annotations)
    of_words = evidence(captioned.model.decoder, memory, captioned.tokens[..., 1:])
    of_contexts, weights = context_evidence(captioned)
    attended = standard_scores(weights.clamp_min(torch.finfo(weights.dtype).tiny).log())
    effects = standard_scores(sampled_effects(captioned))
    choice = standard_scores(
        standard_scores(of_contexts) + EFFECT * effects + LOG_ATTENTION * attended
    )
    strength = standard_scores(standard_scores(neighbourhood_mean(of_words, grid)) + attended)
    log_excess = log_softplus(BEND * (choice - THRESHOLD))
    return (POWER * log_excess + STRENGTH * strength).softmax(dim=-1).unflatten(-1, grid)


def context_evidence(
    captioned: Captioned,
) -> tuple[Float[Tensor, "B N T L"], Float[Tensor, "B N T L"]]:
    """Gradient x input of each word's score with respect to the contexts, and attention weights.

    The score is the word's logit minus the mean logit of the other words that the model expected
    there. The gradient passes gates, cells and the deep output (Xu et al. 2015, eq. 1-3, 7);
    attention weights and the initial state count as constants.
    """
    tokens, decoder = captioned.tokens, captioned.model.decoder
    assert has_evidence(decoder)
    decoder = copy.deepcopy(decoder)  # whose hook no other thread calls
    memory = captioned.model.remember(captioned.annotations)
    contexts: list[Tensor] = []

    def cut(_: object, __: object, attended: Attended) -> Attended:
        contexts.append(attended.context.detach().requires_grad_())
        return attended._replace(context=contexts[-1])

    found, weights = [], []
    state = decoder.start(memory, tokens.shape[1])
    decoder.attention.register_forward_hook(cut)
    for read, word in zip(tokens[..., :-1].unbind(2), tokens[..., 1:].unbind(2), strict=True):
        with torch.enable_grad():
            step = decoder.step(read, state, memory)
            state = step.state
            log_probs = FLATTENING * generable_log_probs(step.logits.detach())
            others = log_probs.scatter(-1, word[..., None], float("-inf")).softmax(dim=-1)
            of_word = step.logits.gather(-1, word[..., None])[..., 0]
            score = of_word - (others * step.logits).sum(dim=-1)
            *earlier, own = torch.autograd.grad(score.sum(), contexts, retain_graph=True)
        gradient = own + EARLIER * sum(earlier, torch.zeros_like(own))
        found.append(torch.einsum("bnd,bld->bnl", gradient, memory.annotations))
        weights.append(step.weights.detach())
    return torch.stack(found, dim=2), torch.stack(weights, dim=2)


def sampled_effects(captioned: Captioned) -> Float[Tensor, "B N T L"]:
    """How much more probable the word is if a region is visible than if it is hidden.

    The mean over random halves of the image that show the region, minus that over those that hide
    it, of the probability's cube as a share of the largest (after RISE, Petsiuk et al. 2018,
    section 3). It covers every path from a region to the word. Zero at PAD and unknown words.
    """
    halves = random_halves(captioned.grid).to(captioned.annotations.device)
    if not len(halves):  # a single region
        return captioned.annotations.new_zeros(*captioned.tokens[..., 1:].shape, 1)
    signs = torch.where(halves, 2.0, -2.0) / len(halves)
    found = []
    for image, tokens in zip(captioned.annotations, captioned.tokens, strict=True):
        parts = []
        for seen in halves.split(max(1, ROWS // len(tokens))):
            times = len(seen), -1, -1
            parts.append(
                word_log_probs(captioned.model, image.expand(times), tokens.expand(times), seen)
            )
        log_probs = torch.cat(parts)
        cubes = (EFFECT_POWER * (log_probs - log_probs.amax(dim=0))).exp()
        found.append(torch.einsum("hnt,hl->ntl", cubes, signs.to(cubes)))
    return torch.stack(found)


def random_halves(grid: tuple[int, int]) -> Bool[Tensor, "H L"]:
    """Random halves of the regions, each followed by its complement; the same for all images.

    A half is where smooth noise is below its median. Noises are made orthogonal, so that no half
    repeats another. A small grid has fewer pairs.
    """
    regions = grid[0] * grid[1]
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((PAIRS, 1, 1, regions)))
    for _ in range(SMOOTHINGS):
        noise = neighbourhood_mean(noise, grid)
    centred = noise[:, 0, 0] - noise[:, 0, 0].mean(dim=1, keepdim=True)
    orthogonal, left = torch.linalg.qr(centred.T)
    kept = orthogonal.T[left.diagonal().abs() > 1e-10]  # the rest is rounding
    half = kept.argsort(dim=1).argsort(dim=1) < regions // 2
    return torch.stack([half, ~half], dim=1).flatten(0, 1)


def log_softplus(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """log(log(1 + exp(x))), without underflow at low values."""
    return torch.where(values < -15, values, F.softplus(values).log())


def standard_scores(values: Float[Tensor, "B N T L"]) -> Float[Tensor, "B N T L"]:
    """Standard deviations above the mean over regions; zero if all regions are alike."""
    deviation, mean = torch.std_mean(values, dim=-1, keepdim=True, correction=0)
    return (values - mean) / deviation.clamp_min(torch.finfo(values.dtype).tiny)
