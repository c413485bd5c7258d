"""The classes of an encoder's own classifier, and the words that name them.

Shapes: B images, L regions, D annotation width, C classes, W words, P pairs of a word and a class
that it names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.tokens import plurals
from captioning.data.vocabulary import Vocabulary
from captioning.models import CNNEncoder, Encoder
from captioning.models.backbones import TIMM, classifier, stages_of


@dataclass(frozen=True)
class Classes:
    """The classes of a backbone's classifier, by their names in lower case.

    If a network applies a linear layer to the mean of its feature map, that layer scores single
    regions as well, and the photo's score is the mean of theirs (class activation mapping, Zhou et
    al. 2016).
    """

    names: Sequence[Sequence[str]]
    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]


def classes_of(encoder: Encoder) -> Classes | None:
    """The classes of the network that an encoder starts from; None if they score no regions."""
    if not isinstance(encoder, CNNEncoder) or encoder.config["weights"] is None:
        return None
    name = encoder.config["backbone"]
    network = classifier(name, encoder.config["weights"])
    names = class_names(network, name)
    return region_classes(network, nn.Sequential(*stages_of(network, name)), names)


def class_names(network: Any, name: str) -> Sequence[Sequence[str]]:
    """The names of a network's classes, if they are those of ImageNet or one of its subsets."""
    if name.startswith(TIMM):
        from timm.data import ImageNetInfo, infer_imagenet_subset

        subset = infer_imagenet_subset(network)
        if subset is None:
            return []
        info = ImageNetInfo(subset)
        return [info.index_to_description(i).lower().split(", ") for i in range(info.num_classes())]
    from torchvision.models import get_model_weights, list_models

    if name not in list_models():
        return []
    return [(each.lower(),) for each in get_model_weights(name).DEFAULT.meta["categories"]]


@torch.no_grad()
def region_classes(
    network: nn.Module, feature_map: nn.Module, names: Sequence[Sequence[str]]
) -> Classes | None:
    """The classes of a network that applies a linear layer to the mean of its feature map.

    None if an image gets different scores both ways.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != len(names):
        return None
    layer, network = layers[-1], network.eval()
    side = getattr(network, "pretrained_cfg", {}).get("input_size", (64,))[-1]
    image = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    scores, mean = network(image), feature_map(image).mean(dim=(2, 3))
    if mean.shape[1] != layer.in_features:
        return None
    if (layer(mean) - scores).abs().max() > 1e-3 * scores.abs().max():
        return None
    bias = torch.zeros(len(names)) if layer.bias is None else layer.bias.detach()
    return Classes(names, layer.weight.detach(), bias)


class ClassWords:
    """The words that name classes, and the classifier's score of each region for them.

    The last word of a name stands for the class, in singular and plural: retriever and retrievers
    for golden retriever. A word of several classes has the score of the best one.

    Attributes:
        words: (W) ids of the words that name classes.
    """

    words: Int[Tensor, " W"]

    def __init__(self, classes: Classes, vocabulary: Vocabulary, device: torch.device) -> None:
        ids = {word: vocabulary.ids([word])[1] for word in vocabulary.words}
        words, rows = [], []
        for index, named in enumerate(classes.names):
            for last in {name.split()[-1] for name in named}:
                for word in {last, *plurals(last)} & ids.keys():
                    words.append(ids[word])
                    rows.append(index)
        of_pairs = torch.tensor(words, dtype=torch.long, device=device)
        self.words, self._places = of_pairs.unique(return_inverse=True)
        named, classes_of_pairs = torch.tensor(rows, dtype=torch.long).unique(return_inverse=True)
        self._classes = classes_of_pairs.to(device)
        self._weight, self._bias = classes.weight[named].to(device), classes.bias[named].to(device)

    @torch.no_grad()
    def shown(self, annotations: Float[Tensor, "B L D"]) -> Float[Tensor, "B W L"]:
        """The score of each region for each word, in nats: the best of its classes."""
        scores = F.linear(annotations.to(self._weight.dtype), self._weight, self._bias)
        of_pairs = scores.flatten(0, 1).t()[self._classes]  # (P, B L)
        places = self._places[:, None].expand_as(of_pairs)
        least = of_pairs.new_full((len(self.words), of_pairs.shape[1]), -torch.inf)
        best = least.scatter_reduce(0, places, of_pairs, "amax")
        return best.unflatten(1, annotations.shape[:2]).transpose(0, 1)
