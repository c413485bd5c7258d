"""What reviews are computed from: captions with and without their photo, and with other words.

Shapes: B images, N captions per image, T words, L regions, A adapted width, V vocabulary, S
features of words, C of captions, n words to judge, K alternatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.captioner.decoded_batch import token_log_probs
from captioning.captioner.inference_network import InferenceNetwork
from captioning.data.dataset import pad_captions
from captioning.data.vocabulary import PAD, UNK, Vocabulary
from captioning.models.decoder import Memory

ALTERNATIVES = 3
"""Alternatives to each word."""

SWAP_BATCH = 16
"""Captions of each photo with another word that are read at once, so that their logits fit."""


@dataclass(frozen=True)
class ReviewFeatures:
    """Captions of a batch of photos, and the features of their reviews.

    Attributes:
        tokens: the captions, up to EOS and then PAD.
        logits: the logits before each token, given the photo.
        words: `WORD_FEATURES` of each token; 0 for tokens that the model does not know. Only words
            to judge have the last one.
        captions: `CAPTION_FEATURES` of each caption.
    """

    tokens: Int[Tensor, "B N T"]
    logits: Float[Tensor, "B N T V"]
    words: Float[Tensor, "B N T S"]
    captions: Float[Tensor, "B N C"]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        network: InferenceNetwork,
        vocabulary: Vocabulary,
        prior: Sequence[float],
        vectors: Float[Tensor, "B L A"],
        captions: Sequence[Sequence[Sequence[str]]],
        places: Sequence[tuple[int, int, int]] = (),
    ) -> "ReviewFeatures":
        """Compute the features.

        Args:
            network: the model.
            vocabulary: its words.
            prior: `ReviewCalibration.prior`.
            vectors: the adapted annotation vectors of the photos.
            captions: the words of each caption of each photo.
            places: image, caption and place of each word to judge, image by image.
        """
        ids = [
            [torch.tensor(vocabulary.ids(words)[1:]) for words in photo_captions]
            for photo_captions in captions
        ]
        tokens = pad_captions(ids).to(network.device)
        memory = network.remember(vectors)
        logits, _ = network.teacher_forcing(memory, tokens)
        rows = tokens.flatten(0, 1)[None]  # without photos, all are captions of one image
        prior_memory = network.remember(vectors.new_tensor(prior)[None, None])
        blind_logits, _ = network.teacher_forcing(prior_memory, rows)
        log_probs = _known_log_probs(logits, tokens)
        blind_log_probs = _known_log_probs(blind_logits, rows).view(tokens.shape)
        counts = ((tokens != PAD) & (tokens != UNK)).sum(dim=2).clamp(min=1)
        means = log_probs.sum(dim=2) / counts
        log_ratios = means - blind_log_probs.sum(dim=2) / counts
        swaps = torch.zeros_like(log_probs)
        if places and len(_content_ids(vocabulary)) > 1:
            judged = torch.tensor(places, device=network.device).unbind(dim=1)
            substitutes = content_alternatives(logits[judged], tokens[judged], vocabulary)
            swap_log_probs = _swap_log_probs(network, memory, tokens, places, substitutes)
            caption_log_probs = log_probs[judged[:2]].sum(dim=1)
            swaps[judged] = caption_log_probs - swap_log_probs.logsumexp(dim=1)
        return cls(
            tokens=tokens,
            logits=logits,
            words=torch.stack([log_probs, blind_log_probs, swaps], dim=3),
            captions=torch.stack([log_ratios, means], dim=2),
        )


def content_alternatives(
    logits: Float[Tensor, "n V"], tokens: Int[Tensor, " n"], vocabulary: Vocabulary
) -> Int[Tensor, "n K"]:
    """Return the content words that the model would rather say than each token, likeliest first."""
    content_ids = tokens.new_tensor(_content_ids(vocabulary))
    scores = torch.full_like(logits, float("-inf"))
    scores[:, content_ids] = logits[:, content_ids]
    scores.scatter_(1, tokens[:, None], float("-inf"))
    return scores.topk(min(ALTERNATIVES, len(content_ids) - 1), dim=1).indices


def _swap_log_probs(
    network: InferenceNetwork,
    memory: Memory,
    tokens: Int[Tensor, "B N T"],
    places: Sequence[tuple[int, int, int]],
    substitutes: Int[Tensor, "n K"],
) -> Float[Tensor, "n K"]:
    """Return the log probability of captions with other words in one place.

    What is said after the word counts, too: a cat on a leash is rather a dog.

    Args:
        network: the model.
        memory: of the photos.
        tokens: the captions.
        places: image, caption and place of each word that is replaced, image by image.
        substitutes: the words to put there.
    """
    captions: list[list[Tensor]] = [[] for _ in tokens]
    for (image, rank, place), words in zip(places, substitutes.cpu(), strict=True):
        swapped = tokens[image, rank].cpu().repeat(len(words), 1)
        swapped[:, place] = words
        captions[image] += swapped.unbind()
    swapped_tokens = pad_captions(captions).to(network.device)
    log_probs = []
    for chunk in swapped_tokens.split(SWAP_BATCH, dim=1):
        logits, _ = network.teacher_forcing(memory, chunk)
        log_probs.append(_known_log_probs(logits, chunk).sum(dim=2))
    is_caption = (swapped_tokens != PAD).any(dim=2)
    return torch.cat(log_probs, dim=1)[is_caption].view(substitutes.shape)


def _known_log_probs(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"]
) -> Float[Tensor, "B N T"]:
    """Return the log probability of each token; 0 at PAD and UNK."""
    return token_log_probs(logits, tokens).masked_fill(tokens == UNK, 0.0)


def _content_ids(vocabulary: Vocabulary) -> list[int]:
    return [token for token in vocabulary.content_ids if token != PAD]
