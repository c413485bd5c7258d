"""What reviews are computed from: captions with and without their photo, and with other words.

Shapes: B images, N captions per image, T words, L regions, A adapted width, V vocabulary, S
features of words, C of captions, n words to judge, K alternatives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.captioner.inference_network import InferenceNetwork
from captioning.data.dataset import pad_captions
from captioning.data.vocabulary import PAD, UNK, Vocabulary
from captioning.search.search import generable_log_probs

ALTERNATIVES = 3
"""Alternatives to each word."""

READ_TOKENS = 2048
"""Tokens of captions without their photo, or with another word, that are read at once: few enough
that their logits fit into memory."""


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
        priors: Sequence[Sequence[float]],
        vectors: Float[Tensor, "B L A"],
        captions: Sequence[Sequence[Sequence[str]]],
        places: Sequence[tuple[int, int, int]] = (),
    ) -> "ReviewFeatures":
        """Compute the features.

        Args:
            network: the model.
            vocabulary: its words.
            priors: `ReviewCalibration.priors`.
            vectors: the adapted annotation vectors of the photos.
            captions: the words of each caption of each photo.
            places: image, caption and place of each word to judge, image by image.
        """
        ids = [
            [torch.tensor(vocabulary.ids(words)[1:]) for words in photo_captions]
            for photo_captions in captions
        ]
        tokens = pad_captions(ids).to(network.device)
        logits, _ = network.teacher_forcing(network.remember(vectors), tokens)
        log_probs = _known_log_probs(logits, tokens)
        blind_log_probs, marginal_log_probs = _blind_log_probs(network, priors, vectors, tokens)
        counts = ((tokens != PAD) & (tokens != UNK)).sum(dim=2).clamp(min=1)
        means = log_probs.sum(dim=2) / counts
        log_ratios = means - marginal_log_probs / counts
        swaps = torch.zeros_like(log_probs)
        if places and len(_content_ids(vocabulary)) > 1:
            images, ranks, words = torch.tensor(places, device=network.device).unbind(dim=1)
            judged = images, ranks, words
            substitutes = content_alternatives(logits[judged], tokens[judged], vocabulary)
            swap_log_probs = _swap_log_probs(network, vectors, tokens, judged, substitutes)
            caption_log_probs = log_probs[images, ranks].sum(dim=1)
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
    """Return the most probable other content words in place of each token, the best first."""
    content_ids = tokens.new_tensor(_content_ids(vocabulary))
    scores = torch.full_like(logits, float("-inf"))
    scores[:, content_ids] = logits[:, content_ids]
    scores.scatter_(1, tokens[:, None], float("-inf"))
    return scores.topk(min(ALTERNATIVES, len(content_ids) - 1), dim=1).indices


def _swap_log_probs(
    network: InferenceNetwork,
    vectors: Float[Tensor, "B L A"],
    tokens: Int[Tensor, "B N T"],
    judged: tuple[Int[Tensor, " n"], Int[Tensor, " n"], Int[Tensor, " n"]],
    substitutes: Int[Tensor, "n K"],
) -> Float[Tensor, "n K"]:
    """Return the log probability of captions with other words in one place.

    What is said after the word counts, too: a cat on a leash is rather a dog. One photo at a time,
    since photos have different numbers of words, and padding would take most of the time.

    Args:
        network: the model.
        vectors: the adapted annotation vectors of the photos.
        tokens: the captions.
        judged: image, caption and place of each word that is replaced, image by image.
        substitutes: the words to put there.
    """
    images, ranks, places = judged
    count = substitutes.shape[1]
    captions = tokens[images, ranks][:, None].repeat(1, count, 1)
    captions.scatter_(2, places[:, None, None].expand(-1, count, 1), substitutes[..., None])
    log_probs = []
    for image in images.unique():
        image_captions = captions[images == image].flatten(0, 1)
        length = int((image_captions != PAD).sum(dim=1).max())
        memory = network.remember(vectors[image][None])
        for batch in image_captions[None, :, :length].split(max(READ_TOKENS // length, 1), dim=1):
            logits, _ = network.teacher_forcing(memory, batch)
            log_probs.append(_known_log_probs(logits, batch).sum(dim=2))
    return torch.cat(log_probs, dim=1).view(-1, count)


def _blind_log_probs(
    network: InferenceNetwork,
    priors: Sequence[Sequence[float]],
    vectors: Float[Tensor, "B L A"],
    tokens: Int[Tensor, "B N T"],
) -> tuple[Float[Tensor, "B N T"], Float[Tensor, "B N"]]:
    """Return log probabilities without the photo.

    Captions of like length are read together, since padding would take half of the time.

    Args:
        network: the model.
        priors: `ReviewCalibration.priors`.
        vectors: the adapted annotation vectors, of whose type and device the priors become.
        tokens: the captions.

    Returns:
        those of tokens by the mean of the priors, and those of captions by a mixture of the priors.
    """
    prior_vectors = vectors.new_tensor(priors)
    images = torch.cat([prior_vectors.mean(dim=0, keepdim=True), prior_vectors])
    memory = network.remember(images[:, None])
    captions = tokens.flatten(0, 1)
    lengths = (captions != PAD).sum(dim=1)
    count = max(READ_TOKENS // (len(images) * captions.shape[1]), 1)
    dtype = torch.promote_types(vectors.dtype, torch.float32)  # vectors may be in bfloat16
    mean_log_probs = vectors.new_zeros(captions.shape, dtype=dtype)
    log_marginals = vectors.new_zeros(len(captions), dtype=dtype)
    real_captions = lengths.argsort()[int((lengths == 0).sum()) :]
    for rows in real_captions.split(count):
        length = int(lengths[rows].max())
        batch = captions[rows, :length].expand(len(images), -1, -1)
        logits, _ = network.teacher_forcing(memory, batch)
        log_probs = _known_log_probs(logits, batch)
        mean_log_probs[rows, :length] = log_probs[0]
        log_marginals[rows] = log_probs[1:].sum(dim=2).logsumexp(dim=0) - math.log(len(priors))
    return mean_log_probs.view(tokens.shape), log_marginals.view(tokens.shape[:2])


def _known_log_probs(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"]
) -> Float[Tensor, "B N T"]:
    """Return the log probability of each token; 0 at PAD and UNK."""
    is_known = (tokens != PAD) & (tokens != UNK)
    known_log_probs = generable_log_probs(logits[is_known])  # of the logits, half are of padding
    log_probs = known_log_probs.new_zeros(tokens.shape)
    log_probs[is_known] = known_log_probs.gather(1, tokens[is_known][:, None]).squeeze(1)
    return log_probs


def _content_ids(vocabulary: Vocabulary) -> list[int]:
    return [token for token in vocabulary.content_ids if token != PAD]
