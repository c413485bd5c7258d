"""Attention that learns to look where the words that it writes can be seen.

Shapes: B images, N captions per image, T words, L regions, W different words in a batch.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.vocabulary import SPECIAL
from captioning.errors import InputError
from captioning.maps.evidence_map import SHARPNESS, evidence_shares
from captioning.models.decoder import Decoder, Memory
from captioning.numbers import Importance, Share, ShareBelowOne
from captioning.training.class_words import ClassWords
from captioning.training.objectives import CrossEntropy, Loss, grid_of


class GuidedAttention(CrossEntropy):
    """Cross-entropy, with terms that need no boxes and make attention agree with evidence.

    *Contrast*: the evidence of a photo's regions for a word of its captions, pooled, exceeds that
    of the batch's other photos, whose captions do not have the word. So regions learn words by
    themselves (contrastive grounding, Gupta et al. 2020; here with the decoder's own deep output,
    `Decoder.evidence`, and no further parameters).

    *Guide*: the attention before a word follows the map of evidence for the word that comes, as
    Liu et al. (2017) let it follow boxes; no dropout blurs that map. A word counts as much as its
    map is peaked, so that function words hardly do.

    *Classes*: for the words that name classes of the encoder's own classifier, the evidence learns
    from its score of each region. Every fourth noun is rare in the captions; the encoder has seen
    a thousand photos of what many of these name.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        contrast: how much the contrast counts, beside the mean cross-entropy of a word in nats.
        guide: how much the guide does.
        classes: how much the encoder's own classes do. Above zero they need an encoder that starts
            from weights with a classifier of its feature map's mean (`Encoder.classes`).
        consensus: see `CrossEntropy`.

    Raises:
        InputError: the decoder has no evidence, see `Decoder.evidence`, or the encoder no classes.
    """

    def __init__(
        self,
        label_smoothing: ShareBelowOne = 0.1,
        attention_penalty: Importance = 0.0,
        contrast: Importance = 0.1,
        guide: Importance = 0.1,
        classes: Importance = 0.0,
        consensus: Share = 0.0,
    ) -> None:
        super().__init__(label_smoothing, attention_penalty, consensus)
        self.contrast = contrast
        self.guide = guide
        self.classes = classes
        self._class_words: ClassWords | None = None

    def __call__(
        self, captioner: Captioner, annotations: Float[Tensor, "B L D"], batch: Batch
    ) -> Loss:
        """The loss of a batch, in nats; to be divided by its words.

        Raises:
            InputError: the decoder has no evidence, or the encoder no classes.
        """
        memory = captioner.fast_decoder.remember(annotations)
        loss = self.of_words(captioner, memory, batch.tokens)
        targets = batch.tokens[..., 1:]
        words, places = targets.unique(return_inverse=True)
        named = words >= len(SPECIAL)
        certain = _without_dropout(captioner.decoder, annotations)
        maps = _maps(captioner, certain, words, places)
        terms = {"guide": guide_loss(loss.weights, maps, named[places] & loss.real)}
        if self.contrast:
            spoken = torch.zeros(len(targets), len(words), dtype=torch.bool, device=targets.device)
            spoken = spoken.scatter(1, places.flatten(1), value=True)
            evidence = _evidence(captioner.decoder, memory, words)
            terms["contrast"] = contrast_loss(evidence[:, named], spoken[:, named])
        if self.classes:
            terms["classes"] = self._class_loss(captioner, annotations, certain)
        guided = sum(getattr(self, name) * term for name, term in terms.items())
        figures: dict[str, float | Tensor] = {name: term.detach() for name, term in terms.items()}
        return Loss(loss.total + loss.number * guided, loss.number, figures)

    def _class_loss(
        self, captioner: Captioner, annotations: Float[Tensor, "B L D"], memory: Memory
    ) -> Float[Tensor, ""]:
        classes = captioner.encoder.classes
        if classes is None:
            raise InputError(
                "the encoder scores no classes: it needs weights with a classifier of its feature "
                "map's mean; or set the objective's classes to 0"
            )
        if self._class_words is None:
            self._class_words = ClassWords(classes, captioner.vocabulary, annotations.device)
        with torch.no_grad():
            shown = self._class_words.shown(annotations)
        return class_loss(_evidence(captioner.decoder, memory, self._class_words.words), shown)


def _without_dropout(decoder: Decoder, annotations: Float[Tensor, "B L D"]) -> Memory:
    """What the decoder remembers of photos where nothing is dropped, as the maps have it."""
    training = decoder.training
    decoder.eval()
    memory = decoder.remember(annotations)
    decoder.train(training)
    return memory


def _evidence(decoder: Decoder, memory: Memory, words: Int[Tensor, " W"]) -> Float[Tensor, "B W L"]:
    """The evidence of each photo's regions for each word."""
    each = words.expand(len(memory.annotations), 1, -1)
    return decoder.evidence(memory, each).squeeze(1).float()


@torch.no_grad()
def _maps(
    captioner: Captioner, memory: Memory, words: Int[Tensor, " W"], places: Int[Tensor, "B N T"]
) -> Float[Tensor, "B N T L"]:
    """The map of evidence of every word that is read, by its place among the different words."""
    evidence = _evidence(captioner.decoder, memory, words)
    maps = evidence_shares(evidence[:, None], grid_of(captioner, memory.annotations))[:, 0]
    regions = maps.shape[2]
    return maps.gather(1, places.flatten(1)[..., None].expand(-1, -1, regions)).view(
        *places.shape, regions
    )


def contrast_loss(
    evidence: Float[Tensor, "B W L"], spoken: Bool[Tensor, "B W"]
) -> Float[Tensor, ""]:
    """Minus the log probability of a photo among those without the word, mean over its words.

    Evidence is pooled by the logarithm of the mean exponential over regions, a soft maximum. A word
    that all photos have tells none of them apart and does not count.

    Args:
        evidence: of each photo's regions for each word, in nats.
        spoken: whether the photo's captions have the word.
    """
    pooled = evidence.logsumexp(dim=2) - math.log(evidence.shape[2])
    least = torch.finfo(pooled.dtype).min  # finite, since the gradient of -inf is not a number
    others = pooled.masked_fill(spoken, least).logsumexp(dim=0)  # (W)
    counts = spoken & ~spoken.all(dim=0)
    lost = F.softplus(others - pooled)
    return (lost * counts).sum() / counts.sum().clamp(min=1)


def class_loss(
    evidence: Float[Tensor, "B W L"], shown: Float[Tensor, "B W L"]
) -> Float[Tensor, ""]:
    """Divergence of the evidence from what the encoder's classes show, in nats, mean over words.

    Both are shares of all regions of the batch, so they say where in a photo a word is, and in
    which photo (distillation, Hinton et al. 2015). The evidence is as sharp as its map.

    Args:
        evidence: of each photo's regions for each word, in nats.
        shown: the encoder's score of what the word names, in nats.
    """
    learnt = (SHARPNESS * evidence).transpose(0, 1).flatten(1).log_softmax(dim=1)
    wanted = shown.transpose(0, 1).flatten(1).log_softmax(dim=1)
    divergence = F.kl_div(learnt, wanted, reduction="sum", log_target=True)
    return divergence / max(evidence.shape[1], 1)


def guide_loss(
    weights: Float[Tensor, "B N T L"],
    wanted: Float[Tensor, "B N T L"],
    named: Bool[Tensor, "B N T"],
) -> Float[Tensor, ""]:
    """Divergence of attention from wanted maps in nats, mean over words by how peaked these are.

    Args:
        weights: attention before each word.
        wanted: shares that it should have.
        named: the words that count at all.
    """
    log_wanted = wanted.clamp_min(torch.finfo(wanted.dtype).tiny).log()
    entropy = -(wanted * log_wanted).sum(dim=3)
    peaked = (1 - entropy / math.log(wanted.shape[3])) * named
    divergence = -entropy - (wanted * weights.float().clamp_min(1e-6).log()).sum(dim=3)
    return (divergence * peaked).sum() / peaked.sum().clamp_min(1e-6)
