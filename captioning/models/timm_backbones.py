"""Backbones of timm (Wightman 2019, PyTorch Image Models): convolutional ones and transformers."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.models.backbones import TIMM, Backbone, classes_of, downloaded, load_weights
from captioning.models.efficientnet_lite import NETWORKS, WIDTH, efficientnet_lite


def timm_backbone(name: str, weights: str | None) -> Backbone:
    """A backbone of timm, normalised as timm's own configuration says.

    Args:
        name: timm's, such as ``tf_efficientnet_lite2`` or ``vit_small_patch16_224.augreg_in1k``.
        weights: ``DEFAULT`` for those that timm downloads, the path of a state dict, or None.

    Raises:
        InputError: timm has no such model, or the weights are missing or do not fit.
    """
    if weights is None and (known := name.removesuffix(".in1k")) in NETWORKS:
        size = NETWORKS[known][2]
        return Backbone(WIDTH, efficientnet_lite(known), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), size)
    import timm  # only here, since it takes seconds

    if not timm.is_model(name):
        near = timm.list_models(f"*{name.partition('.')[0]}*")[:5]
        hint = f"; it has {', '.join(near)}" if near else "; see timm.list_models()"
        raise InputError(f"timm has no model {name!r}{hint}")
    model: Any
    try:
        model = timm.create_model(name, dynamic_img_size=True)  # a transformer for any image size
    except TypeError:  # convolutions know no such option
        model = timm.create_model(name)

    def download() -> Any:
        pretrained = downloaded(
            f"the weights of {name}", lambda: timm.create_model(name, pretrained=True)
        )
        return pretrained.state_dict()

    load_weights(model, f"{TIMM}{name}", weights, download)
    config = model.pretrained_cfg
    size = config["input_size"][-1]
    stages = _stages(model, name)
    feature_map = nn.Sequential(*stages)
    classes = classes_of(model, feature_map, _class_names(model), size) if weights else None
    model.reset_classifier(0)
    return Backbone(model.num_features, stages, config["mean"], config["std"], size, classes)


def _stages(model: Any, name: str) -> list[nn.Module]:
    """What computes the last feature map, in as many stages as are known of this network."""
    from timm.models.efficientnet import EfficientNet

    if not isinstance(model, EfficientNet):
        return [FeatureMap(model, name)]
    blocks = [block for stage in model.blocks.children() for block in stage.children()]
    stem = nn.Sequential(model.conv_stem, model.bn1)
    return [stem, *blocks, nn.Sequential(model.conv_head, model.bn2)]


def _class_names(model: Any) -> list[list[str]]:
    """WordNet's names of the classes, if they are those of ImageNet or one of its subsets."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(model)
    if subset is None:
        return []
    info = ImageNetInfo(subset)
    return [info.index_to_description(i).lower().split(", ") for i in range(info.num_classes())]


class FeatureMap(nn.Module):
    """The last feature map of a timm model.

    Of a vision transformer (Dosovitskiy et al. 2021) these are the patch tokens after the last
    norm, each in its patch's place; class and register tokens are left out.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D rows columns"]:
        """The feature map; InputError if the model is for images of another size."""
        try:
            features: Tensor = self.model.forward_features(images)
        except (AssertionError, RuntimeError) as error:  # how timm says that a size does not fit
            if isinstance(error, RuntimeError) and not images.is_meta:
                raise
            reason = " ".join(str(error).split())
            raise InputError(f"{TIMM}{self.name}: {reason}; set data.size to fit") from None
        if features.ndim == 3:
            return self._laid_out(features, images.shape[2] / images.shape[3])
        if getattr(self.model, "output_fmt", "NCHW") == "NHWC":
            return features.permute(0, 3, 1, 2)
        return features

    def _laid_out(
        self, tokens: Float[Tensor, "B tokens D"], aspect: float
    ) -> Float[Tensor, "B D rows columns"]:
        """Patch tokens in rows and columns, on a grid of the image's own shape."""
        patches = tokens[:, getattr(self.model, "num_prefix_tokens", 0) or 0 :]
        rows = round((patches.shape[1] * aspect) ** 0.5)
        columns = patches.shape[1] // max(rows, 1)
        if patches.shape[1] < 2 or rows * columns != patches.shape[1]:
            raise InputError(
                f"{TIMM}{self.name}: gives no feature map, so there is nothing to attend to; "
                "choose another backbone"
            )
        return patches.transpose(1, 2).unflatten(2, (rows, columns))
