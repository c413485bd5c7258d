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
        consensus: see `CrossEntropy`.
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
        words, places = targets.unique(return_inverse=True)
        named = words >= len(SPECIAL)
        training = adapter.training
        adapter.eval()  # as when maps are shown
        regions = decoder.output_context(adapter(annotations))
        adapter.train(training)
        grid = grid_of(model.encoder, self.preprocessing.size, annotations)
        with torch.no_grad():
            maps = evidence_shares(_evidence(decoder, regions, words)[:, None], grid)[:, 0]
            of_each = places.flatten(1)[..., None].expand(-1, -1, maps.shape[2])
            maps = maps.gather(1, of_each).view(*places.shape, -1)
        terms = {"guide": guide_loss(weights, maps, named[places])}
        if self.contrast:
            spoken = torch.zeros(len(targets), len(words), dtype=torch.bool, device=targets.device)
            spoken = spoken.scatter(1, places.flatten(1), value=True)
            of_words = _evidence(decoder, decoder.output_context(memory.annotations), words)
            terms["contrast"] = contrast_loss(of_words[:, named], spoken[:, named])
        if self.classes:
            if self._class_words is None:
                self._class_words = ClassWords(self._classes, self.vocabulary, annotations.device)
            of_classes = _evidence(decoder, regions, self._class_words.words)
            terms["classes"] = class_loss(of_classes, self._class_words.shown(annotations))
        guided = sum(getattr(self, name) * term for name, term in terms.items())
        figures = {name: term.detach() for name, term in terms.items()}
        return Loss(loss.total + loss.divisor * guided, loss.divisor, figures)


def _evidence(
    decoder: LSTMDecoder, regions: Float[Tensor, "B L m"], words: Int[Tensor, " W"]
) -> Float[Tensor, "B W L"]:
    return evidence_of(decoder, regions, words[None, None]).squeeze(1).float()


def contrast_loss(
    evidence: Float[Tensor, "B W L"], spoken: Bool[Tensor, "B W"]
) -> Float[Tensor, ""]:
    """Minus the log probability of a photo among those without the word, mean over its words.

    Evidence, in nats, is pooled by the logarithm of the mean exponential over regions, a soft
    maximum. `spoken` says which photo's captions have which word; words of all photos are ignored.
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
    """Divergence of the evidence from the classifier's scores, in nats, mean over words.

    Both are normalised over all regions of the batch, so they locate a word in a photo and among
    photos (distillation, Hinton et al. 2015). The evidence is as sharp as its map.
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
    """Divergence of attention from the wanted maps in nats, averaged over words by peakedness."""
    log_wanted = wanted.clamp_min(torch.finfo(wanted.dtype).tiny).log()
    entropy = -(wanted * log_wanted).sum(dim=3)
    peaked = (1 - entropy / math.log(wanted.shape[3])) * named
    divergence = -entropy - (wanted * weights.float().clamp_min(1e-6).log()).sum(dim=3)
    return (divergence * peaked).sum() / peaked.sum().clamp_min(1e-6)


class Classes(NamedTuple):
    """The classes of a linear layer on the mean of a feature map, by their names in lower case.

    The layer scores single regions, too (class activation mapping, Zhou et al. 2016).
    """

    names: Sequence[Sequence[str]]
    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]


def classes_of(encoder: Encoder) -> Classes:
    """The classes of the network that an encoder starts from; InputError if it has none.

    Their names are known if they are those of ImageNet or one of its subsets.
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
                names = [(each.lower(),) for each in meta["categories"]]
        else:
            from timm.data import ImageNetInfo, infer_imagenet_subset

            if subset := infer_imagenet_subset(network):
                info = ImageNetInfo(subset)
                told = map(info.index_to_description, range(info.num_classes()))
                names = [each.lower().split(", ") for each in told]
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

    That is tried on a random image, which must get the same scores both ways.
    """
    layer = next((m for m in [*network.modules()][::-1] if isinstance(m, nn.Linear)), None)
    if layer is None or layer.out_features != len(names):
        return None
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
        pairs = []
        for index, its in enumerate(classes.names):
            for last in {name.split()[-1] for name in its}:
                pairs += [(ids[word], index) for word in {last, *plurals(last)} & ids.keys()]
        of_pairs = torch.tensor(pairs, dtype=torch.long).view(-1, 2)
        words, places = of_pairs[:, 0].unique(return_inverse=True)
        self.words, self._places = words.to(device), places.to(device)
        named, rows = of_pairs[:, 1].unique(return_inverse=True)
        self._classes = rows.to(device)
        self._weight, self._bias = classes.weight[named].to(device), classes.bias[named].to(device)

    @torch.no_grad()
    def shown(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B W L"]:
        """The score of each region for each word, in nats: the best of its classes."""
        scores = F.linear(annotations.to(self._weight.dtype), self._weight, self._bias)
        scores = scores[..., self._classes]  # (B L P)
        least = scores.new_full((*scores.shape[:2], len(self.words)), -torch.inf)
        best = least.scatter_reduce(2, self._places.expand_as(scores), scores, "amax")
        return best.transpose(1, 2)
