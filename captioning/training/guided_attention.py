"""Attention guided, without boxes, by the evidence for words and the encoder's own classes.

Shapes: B images, N captions per image, T words, L regions, D annotation width, m width of a word
embedding, W different words, C classes, P pairs of a word and a class that it names.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.dataset import Batch
from captioning.data.tokens import plurals
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.kernels import plain
from captioning.maps.evidence_map import SHARPNESS, evidence_shares, has_evidence
from captioning.maps.evidence_map import evidence as evidence_of
from captioning.models import CNNEncoder, Encoder, LSTMDecoder, Model
from captioning.models.backbones import TIMM, classifier, stages_of
from captioning.training.objectives import CrossEntropy, Loss, grid_of


@dataclass(eq=False)
class GuidedAttention(CrossEntropy):
    """Cross-entropy, with terms that make attention agree with evidence and need no boxes.

    *Contrast*: the pooled evidence of a photo's regions for a word of its captions should exceed
    that of the batch's other photos, whose captions lack the word (Gupta et al. 2020).

    *Guide*: the attention before a word follows the word's map of evidence, without dropout, as it
    follows boxes in Liu et al. (2017). Each word is weighted by how peaked its map is, so that
    function words hardly count.

    *Classes*: for words that name classes of the encoder's own classifier, evidence learns from the
    classifier's score of each region. This helps nouns that are rare in the captions.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14, in the paper's proportion.
        contrast: weight of the contrast, relative to the mean cross-entropy of a word in nats.
        guide: weight of the guide.
        classes: weight of the encoder's classes, which takes weights with a classifier on the mean
            of the feature map.
    """

    attention_penalty: float = 0.0
    contrast: float = 0.1
    guide: float = 0.1
    classes: float = 0.0

    _classes: Any = field(default=None, init=False)
    _class_words: Any = field(default=None, init=False)

    def check(self, model: Model) -> None:
        if not has_evidence(model.decoder):
            raise InputError(
                "GuidedAttention: evidence needs an LSTM decoder with deep output; take it, or "
                "another objective"
            )
        if self.classes:
            self._classes = classes_of(model.encoder)

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        adapter, decoder = model.adapter, plain(model.decoder)
        assert has_evidence(decoder)
        memory = model.remember(annotations)
        loss, weights = self.of_words(model.decoder, memory, batch.tokens)
        targets = batch.tokens[..., 1:]
        words, word_indices = targets.unique(return_inverse=True)  # (W), (B N T)
        is_word = words >= len(SPECIAL)
        training = adapter.training
        adapter.eval()  # as when maps are shown
        regions = decoder.output_context(adapter(annotations))
        adapter.train(training)
        grid = grid_of(model.encoder, self.preprocessing.size, annotations)
        with torch.no_grad():
            maps = evidence_shares(_evidence(decoder, regions, words)[:, None], grid)[:, 0]
            rows = word_indices.flatten(1)[..., None].expand(-1, -1, maps.shape[2])
            target_maps = maps.gather(1, rows).view(*word_indices.shape, -1)
        terms = {"guide": guide_loss(weights, target_maps, is_word[word_indices])}
        if self.contrast:
            labels = torch.zeros(len(targets), len(words), dtype=torch.bool, device=targets.device)
            labels = labels.scatter(1, word_indices.flatten(1), value=True)
            evidence = _evidence(decoder, decoder.output_context(memory.annotations), words)
            terms["contrast"] = contrast_loss(evidence[:, is_word], labels[:, is_word])
        if self.classes:
            if self._class_words is None:
                self._class_words = ClassWords(self._classes, self.vocabulary, annotations.device)
            evidence = _evidence(decoder, regions, self._class_words.words)
            terms["classes"] = class_loss(evidence, self._class_words.scores(annotations))
        guidance = sum(getattr(self, name) * term for name, term in terms.items())
        metrics = {name: term.detach() for name, term in terms.items()}
        return Loss(loss.total + loss.divisor * guidance, loss.divisor, metrics)


def _evidence(
    decoder: LSTMDecoder, regions: Float[Tensor, "B L m"], words: Int[Tensor, " W"]
) -> Float[Tensor, "B W L"]:
    return evidence_of(decoder, regions, words[None, None]).squeeze(1).float()


def contrast_loss(
    evidence: Float[Tensor, "B W L"], labels: Bool[Tensor, "B W"]
) -> Float[Tensor, ""]:
    """Minus the log probability of a photo among those without the word, mean over its words.

    Evidence, in nats, is pooled by the logarithm of the mean exponential over regions, a soft
    maximum. Words that the captions of all photos have are ignored.

    Args:
        evidence: the evidence of each region for each word.
        labels: whether the captions of a photo have a word.
    """
    pooled = evidence.logsumexp(dim=2) - math.log(evidence.shape[2])
    minimum = torch.finfo(pooled.dtype).min  # finite, since the gradient of -inf is not a number
    negatives = pooled.masked_fill(labels, minimum).logsumexp(dim=0)  # (W)
    positives = labels & ~labels.all(dim=0)
    losses = F.softplus(negatives - pooled)
    return (losses * positives).sum() / positives.sum().clamp(min=1)


def class_loss(
    evidence: Float[Tensor, "B W L"], scores: Float[Tensor, "B W L"]
) -> Float[Tensor, ""]:
    """KL divergence of the evidence from the classifier's scores, in nats, mean over words.

    Both are normalised over all regions of the batch, so they locate a word in a photo and among
    photos (distillation, Hinton et al. 2015). The evidence is as sharp as its map.
    """
    log_evidence = (SHARPNESS * evidence).transpose(0, 1).flatten(1).log_softmax(dim=1)
    log_target = scores.transpose(0, 1).flatten(1).log_softmax(dim=1)
    divergence = F.kl_div(log_evidence, log_target, reduction="sum", log_target=True)
    return divergence / max(evidence.shape[1], 1)


def guide_loss(
    weights: Float[Tensor, "B N T L"],
    target_maps: Float[Tensor, "B N T L"],
    is_word: Bool[Tensor, "B N T"],
) -> Float[Tensor, ""]:
    """KL divergence of attention from target maps in nats, averaged over words by peakedness.

    Special tokens, where `is_word` is false, are ignored.
    """
    log_maps = target_maps.clamp_min(torch.finfo(target_maps.dtype).tiny).log()
    entropy = -(target_maps * log_maps).sum(dim=3)
    peakedness = (1 - entropy / math.log(target_maps.shape[3])) * is_word
    log_weights = weights.float().clamp_min(1e-6).log()
    divergence = -entropy - (target_maps * log_weights).sum(dim=3)
    return (divergence * peakedness).sum() / peakedness.sum().clamp_min(1e-6)


class Classes(NamedTuple):
    """The classes of a linear layer on the mean of a feature map.

    The layer also scores single regions (class activation mapping, Zhou et al. 2016).

    Attributes:
        names: the names of each class in lower case.
        weight: of the layer.
        bias: of the layer.
    """

    names: Sequence[Sequence[str]]
    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]


def classes_of(encoder: Encoder) -> Classes:
    """The classes of the network that an encoder starts from.

    Only the classes of ImageNet and of its subsets have names.

    Raises:
        InputError: the network has no classes, or they have no names.
    """
    classes = None
    if isinstance(encoder, CNNEncoder) and encoder.config["weights"] is not None:
        name = encoder.config["backbone"]
        network = classifier(name, encoder.config["weights"])
        names: list[Sequence[str]] = []
        if not name.startswith(TIMM):
            from torchvision.models import get_model_weights, list_models  # a second to import

            if name in list_models():
                meta = get_model_weights(name).DEFAULT.meta
                names = [(category.lower(),) for category in meta["categories"]]
        else:
            from timm.data import ImageNetInfo, infer_imagenet_subset

            if subset := infer_imagenet_subset(network):
                info = ImageNetInfo(subset)
                descriptions = map(info.index_to_description, range(info.num_classes()))
                names = [description.lower().split(", ") for description in descriptions]
        classes = region_classes(network, nn.Sequential(*stages_of(network, name)), names)
    if classes is None:
        raise InputError(
            "the encoder has no classes: it needs weights with a classifier on the mean of its "
            "feature map; or set the objective's classes to 0"
        )
    return classes


@torch.no_grad()
def region_classes(
    network: nn.Module, feature_map: nn.Module, names: Sequence[Sequence[str]]
) -> Classes | None:
    """The classes of a linear layer on the mean of the feature map; None if there is no such layer.

    The layer counts if a random image gets the network's scores by it.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != len(names):
        return None
    layer = layers[-1]
    side = getattr(network, "pretrained_cfg", {}).get("input_size", (64,))[-1]
    image = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    scores, mean = network.eval()(image), feature_map(image).mean(dim=(2, 3))
    if mean.shape[1] != layer.in_features or not torch.allclose(
        layer(mean), scores, rtol=0, atol=1e-3 * scores.abs().max().item()
    ):
        return None
    bias = torch.zeros(len(names)) if layer.bias is None else layer.bias.detach()
    return Classes(names, layer.weight.detach(), bias)


class ClassWords:
    """The words that name classes, by id, and the classifier's score of each region for them.

    The last word of a name stands for the class, in singular and plural: retriever and retrievers
    for golden retriever. A word of several classes has the score of the best one.
    """

    words: Int[Tensor, " W"]

    def __init__(self, classes: Classes, vocabulary: Vocabulary, device: torch.device) -> None:
        ids = {word: vocabulary.ids([word])[1] for word in vocabulary.words}
        pairs: list[tuple[int, int]] = []  # of a word's id and a class
        for class_index, names in enumerate(classes.names):
            for head in {name.split()[-1] for name in names}:
                for word in {head, *plurals(head)} & ids.keys():
                    pairs.append((ids[word], class_index))
        word_ids, class_indices = torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(dim=1)
        words, word_columns = word_ids.unique(return_inverse=True)
        rows, class_columns = class_indices.unique(return_inverse=True)
        self.words = words.to(device)
        self._word_columns = word_columns.to(device)  # (P)
        self._class_columns = class_columns.to(device)  # (P)
        self._weight, self._bias = classes.weight[rows].to(device), classes.bias[rows].to(device)

    @torch.no_grad()
    def scores(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B W L"]:
        """The score of each region for each word, in nats: the best of the word's classes."""
        class_scores = F.linear(annotations.to(self._weight.dtype), self._weight, self._bias)
        pair_scores = class_scores[..., self._class_columns]  # (B L P)
        minimum = pair_scores.new_full((*pair_scores.shape[:2], len(self.words)), -torch.inf)
        columns = self._word_columns.expand_as(pair_scores)
        return minimum.scatter_reduce(2, columns, pair_scores, "amax").transpose(1, 2)
