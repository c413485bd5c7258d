"""Backbones of encoders by name, with pretrained weights, as lists of stages.

torchvision's (Marcel and Rodriguez 2010), timm's (Wightman 2019, PyTorch Image Models), and a small
one of this package. The last feature map of a network holds the annotation vectors.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from ssl import SSLError
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from captioning.errors import InputError, reading, removal_message
from captioning.models.efficientnet_lite import NETWORKS, WIDTH, efficientnet_lite
from captioning.models.small_network import SmallCNN
from captioning.shelf import DEFAULT_MODEL, path_of

DEFAULT_WEIGHTS = "DEFAULT"
"""Name of the weights that a backbone's library downloads."""

TIMM = "timm/"
"""Prefix of the names of timm's backbones; torchvision has some of the same names."""

HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of weights in timm's repositories of the Hugging Face Hub."""

SERVER_TIMEOUT = 10.0
"""Seconds to wait for a server of weights; the libraries would wait for a minute or for ever."""

PHOTOS_BACKBONE = f"{TIMM}tf_efficientnet_lite2"
"""Backbone of `DEFAULT_MODEL`, from whose encoder it can start without a download."""

STAGES_PREFIX = "encoder.stages."
"""Prefix of the names of an encoder's tensors in a captioning model's file."""

SMALL_WEIGHTS = Path(__file__).with_name("small_cnn.pth")
"""Weights of the small backbone, trained by `scripts/shapes_model` on drawn scenes."""

BACKBONES = {
    "small": 196,
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "resnet152": 2048,
    "vgg16": 512,
    "vgg19": 512,
    "mobilenet_v2": 1280,
    "mobilenet_v3_large": 960,
    "efficientnet_v2_s": 1280,
    "convnext_tiny": 768,
}
"""Width of the annotation vectors of `SmallCNN` and of torchvision's backbones by name."""


class Backbone(NamedTuple):
    """A network without its classifier.

    Attributes:
        width: channels of the feature map.
        stages: modules that, applied in order, turn images into the feature map.
        mean: mean of each channel of the training images, from 0 to 1.
        std: standard deviation of each channel.
        image_size: side of the training images in pixels; None if any size works.
    """

    width: int
    stages: list[nn.Module]
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # of ImageNet
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    image_size: int | None = 224


def backbone(name: str, weights: str | None) -> Backbone:
    """Load a backbone by name, with weights; see `captioning.models.CNNEncoder`.

    Raises:
        InputError: the name is unknown, or the weights are missing or do not fit.
    """
    lite = name.removeprefix(TIMM).removesuffix(".in1k")
    if name.startswith(TIMM) and weights is None and lite in NETWORKS:
        half = (0.5, 0.5, 0.5)
        return Backbone(WIDTH, efficientnet_lite(lite), half, half, NETWORKS[lite][2])
    network, state = _network(name), _load_weights(name, weights)
    stages_state = {}
    for key, value in state.items():
        if key.startswith(STAGES_PREFIX):
            stages_state[key.removeprefix(STAGES_PREFIX)] = value
    if stages_state:  # of a captioning model
        random_backbone = backbone(name, None)
        _set_weights(nn.ModuleList(random_backbone.stages), stages_state, name, weights)
        return random_backbone
    _set_weights(network, state, name, weights)
    stages = stages_of(network, name)
    if not name.startswith(TIMM):
        return Backbone(BACKBONES[name], stages, image_size=None if name == "small" else 224)
    network.reset_classifier(0)
    config = network.pretrained_cfg
    size = config["input_size"][-1]
    return Backbone(network.num_features, stages, config["mean"], config["std"], size)


def classifier(name: str, weights: str | None) -> nn.Module:
    """Load a network with its classifier; arguments and errors are those of `backbone`."""
    network: nn.Module = _network(name)
    state = _load_weights(name, weights)
    if any(key.startswith(STAGES_PREFIX) for key in state):
        raise InputError(f"{weights}: has no classifier; set the objective's classes to 0")
    _set_weights(network, state, name, weights)
    return network


def _set_weights(network: nn.Module, state: dict[str, Any], name: str, weights: str | None) -> None:
    try:
        if weights is not None:
            network.load_state_dict(state)
    except RuntimeError:
        raise InputError(f"{weights}: not the weights of a {name}") from None


def _network(name: str) -> Any:
    """A network with random parameters."""
    if name == "small":
        return SmallCNN()
    if name in BACKBONES:
        from torchvision import models  # takes a second to import

        return models.get_model(name, weights=None)
    if not name.startswith(TIMM):
        names = ", ".join(BACKBONES)
        line = f"unknown backbone {name!r}; choose from {names}, or give timm's {TIMM}NAME"
        raise InputError(removal_message(line) or line)
    import timm  # takes seconds

    name = name.removeprefix(TIMM)
    if not timm.is_model(name):
        similar_names = ", ".join(timm.list_models(f"*{name.partition('.')[0]}*")[:5])
        hint = f"; it has {similar_names}" if similar_names else ""
        raise InputError(f"timm has no model {name!r}{hint}")
    try:
        return timm.create_model(name, dynamic_img_size=True)  # a transformer for any image size
    except TypeError:  # convolutional networks do not have this option
        return timm.create_model(name)


def _load_weights(name: str, weights: str | None) -> dict[str, Any]:
    """Load the state dict of a network or of a captioning model; empty if `weights` is None."""
    if weights is None:
        return {}
    if weights == DEFAULT_WEIGHTS and name != "small":
        return _download_weights(name)
    path, state = SMALL_WEIGHTS if weights == DEFAULT_WEIGHTS else path_of(weights), None
    with reading(path), path.open("rb") as file:
        try:
            if path.suffix == ".safetensors":
                state = load_file(path)
            else:
                state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # torch.load raises a dozen kinds for a file that holds no weights
            raise InputError(f"{path}: not a file of weights") from None
    if not isinstance(state, dict):
        raise InputError(f"{weights}: not the weights of a {name}")
    return state


def _download_weights(backbone: str) -> dict[str, Any]:
    """Load weights of torchvision or timm, downloaded unless they are in the library's cache."""
    name = backbone
    load: Callable[[], dict[str, Any]]
    is_cached = False
    if name.startswith(TIMM):
        import timm
        from huggingface_hub import hf_hub_url, try_to_load_from_cache

        name = name.removeprefix(TIMM)
        config: Any = timm.get_pretrained_cfg(name)  # None for a few
        url, repository = (config.url or "", config.hf_hub_id) if config else ("", None)
        if repository:
            url = hf_hub_url(repository, HUB_FILES[0])
            cached_files = (try_to_load_from_cache(repository, file) for file in HUB_FILES)
            is_cached = any(isinstance(file, str) for file in cached_files)
        load = lambda: timm.create_model(name, pretrained=True).state_dict()  # noqa: E731
    else:
        from torchvision.models import get_model_weights

        weights = get_model_weights(name).DEFAULT
        url, load = weights.url, partial(weights.get_state_dict, progress=True, check_hash=True)
    file = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    try:
        if url and not is_cached and not file.is_file():
            _check_server(url)
        return load()
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip("<>").removeprefix("urlopen error ")
        remedy = "give a file: --model.encoder.init_args.weights FILE"
        if backbone == PHOTOS_BACKBONE:
            remedy += f", or {DEFAULT_MODEL} to start from the encoder of that model"
        raise InputError(f"{url or name}: {reason}; {remedy}") from error


def _check_server(url: str) -> None:
    """Raise OSError at once if no server answers; libraries would retry for a minute."""
    try:
        urlopen(Request(url, method="HEAD"), timeout=SERVER_TIMEOUT).close()
    except HTTPError:
        pass
    except URLError as error:
        if not isinstance(error.reason, SSLError):  # the libraries have their own certificates
            raise


def stages_of(network: Any, name: str) -> list[nn.Module]:
    """The layers up to the last feature map of a network, as stages."""
    if name.startswith(TIMM):
        from timm.models.efficientnet import EfficientNet

        if not isinstance(network, EfficientNet):
            return [FeatureMap(network, name)]
        blocks = [block for stage in network.blocks.children() for block in stage.children()]
        stem = nn.Sequential(network.conv_stem, network.bn1)
        return [stem, *blocks, nn.Sequential(network.conv_head, network.bn2)]
    if name.startswith("resnet"):
        stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
        return [stem, network.layer1, network.layer2, network.layer3, network.layer4]
    if not name.startswith("vgg"):
        return list(network.features)
    # Stages begin with a pooling. The last pooling is left out, as in the paper: 224 pixels give
    # 14 x 14 cells.
    layers = list(network.features[:-1])
    poolings = [index for index, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    ends = [0, *poolings, len(layers)]
    return [nn.Sequential(*layers[start:end]) for start, end in pairwise(ends)]


class FeatureMap(nn.Module):
    """The last feature map of a timm model.

    For a vision transformer (Dosovitskiy et al. 2021) it is the grid of patch tokens after the last
    norm, without class and register tokens.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D rows columns"]:
        try:
            features: Tensor = self.model.forward_features(images)
        except AssertionError as error:  # raised by timm if the size does not fit
            raise InputError(f"{self.name}: {error}; set data.size to fit") from None
        if features.ndim == 4:
            is_channels_last = getattr(self.model, "output_fmt", "NCHW") == "NHWC"
            return features.permute(0, 3, 1, 2) if is_channels_last else features
        patches = features[:, getattr(self.model, "num_prefix_tokens", 0) or 0 :]
        rows = round((patches.shape[1] * images.shape[2] / images.shape[3]) ** 0.5)
        columns = patches.shape[1] // max(rows, 1)
        if patches.shape[1] < 2 or rows * columns != patches.shape[1]:
            raise InputError(f"{self.name}: gives no feature map; choose another backbone")
        return patches.transpose(1, 2).unflatten(2, (rows, columns))
