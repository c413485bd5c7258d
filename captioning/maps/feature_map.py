"""The last feature map of an encoder that is finer than the grid of its annotation vectors.

Shapes: B images, L regions (rows x columns), D annotation width, C channels of the feature map.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.models.encoder import Encoder


def finer_feature_map(
    encoder: Encoder, images: UInt8[Tensor, "B 3 H W"], grid: tuple[int, int]
) -> tuple[Float[Tensor, "B C finer_rows finer_columns"], Float[Tensor, "B L D"]]:
    """The feature map, and the annotation vectors that the encoder computes from it.

    It is found among what the encoder's modules give, so that no encoder need tell. The vectors'
    gradient ends at the feature map.

    Args:
        encoder: any.
        images: the photos.
        grid: rows and columns of the annotation vectors' regions.

    Raises:
        InputError: the encoder has no such map, as a vision transformer, or gives no gradient.
    """
    found: list[tuple[nn.Module, int]] = []
    calls: dict[nn.Module, int] = {}

    def note(module: nn.Module, _: Any, output: Any) -> None:
        calls[module] = calls.get(module, 0) + 1
        if _is_finer(output, grid):
            found.append((module, calls[module]))

    with torch.no_grad(), _hooked(encoder, note):
        encoder(images[:1])
    if not found:
        raise InputError("this encoder has no finer feature map; choose grad-cam")
    chosen, call = found[-1]
    calls.clear()
    leaves: list[Tensor] = []

    def cut(module: nn.Module, _: Any, output: Any) -> Any:
        calls[module] = calls.get(module, 0) + 1
        if module is not chosen or calls[module] != call:
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[0].clone()  # a later layer may work in place, which a leaf does not allow

    with torch.enable_grad(), _hooked(encoder, cut):
        annotations = encoder(images)
    if not annotations.requires_grad:
        raise InputError("this encoder gives no gradient; choose attention or occlusion")
    return leaves[0], annotations


def _is_finer(output: Any, grid: tuple[int, int]) -> bool:
    """Whether a module gave a feature map of the grid's shape with more rows."""
    if not isinstance(output, Tensor) or output.ndim != 4 or not output.is_floating_point():
        return False
    rows, columns = output.shape[2:]
    return rows > grid[0] and rows * grid[1] == columns * grid[0]


@contextmanager
def _hooked(network: nn.Module, hook: Callable[[nn.Module, Any, Any], Any]) -> Iterator[None]:
    """A block in which a hook sees what each module of a network gives."""
    handles = [part.register_forward_hook(hook) for part in network.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
