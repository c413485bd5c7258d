"""The energies of additive attention, v . tanh(k + q), for every pair of key and query.

Equals `captioning.models.attention.AdditiveAttention.scores`, given projected queries and the
exponentials of keys. These energies are the largest thing in the model: B x N x L x A numbers for
every word. Three ideas make them cheap.

Keys are stored as exponentials, since tanh(k + q) = 1 - 2 r with r = 1 / (1 + exp(2 k) exp(2 q)):
each pair costs a product and a division, and no exponential. Keys and queries are clamped to
`LIMIT`, where tanh is one to the last digit unless both are huge and opposite.

The pairs are computed in blocks of images that fit into a processor's cache. The compiled form
never writes r to memory.

The backward pass recomputes r, so that nothing of size B x N x L x A is kept.

Shapes: B images, N captions per image, L regions, A attention width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from captioning.kernels.compiled import Compiled

LIMIT = 30.0
BLOCK = 2**18
"""Elements in a block: a megabyte in single precision, which fits the caches of two cores."""


def exponential(x: Float[Tensor, "B X A"]) -> Float[Tensor, "B X A"]:
    """exp(2 x), at least in single precision, also under autocast."""
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    return (2 * precise.clamp(-LIMIT, LIMIT)).exp()


class Energies(torch.autograd.Function):
    """v . tanh(k + q), from queries (B, N, A), keys as exponentials (B, L, A) and v (1, A)."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B N A"],
        keys: Float[Tensor, "B L A"],
        direction: Float[Tensor, "1 A"],
    ) -> Float[Tensor, "B N L"]:
        """The energies."""
        ctx.save_for_backward(queries, keys, direction)
        return _energies(queries, keys, direction)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "B N L"]) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of queries, keys and v."""
        queries, keys, direction = ctx.saved_tensors
        of_keys = torch.zeros_like(keys)
        of_direction = torch.zeros_like(direction)
        of_queries = add_energy_gradients(gradient, queries, keys, direction, of_keys, of_direction)
        return of_queries, of_keys, of_direction


def _energies_at_once(queries: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
    asked, v = exponential(queries), direction[0].to(keys.dtype)
    r = 1 / (1 + asked[:, :, None] * keys[:, None])
    return v.sum() - 2 * (r * v).sum(-1)


def _energies_in_blocks(queries: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
    asked, v = exponential(queries), direction[0].to(keys.dtype)
    energies = keys.new_empty(*queries.shape[:2], keys.shape[1])
    for r, here in _blocks(asked, keys, energies):
        torch.mv(r.flatten(0, 2), v, out=here.view(-1))
    return energies.mul_(-2).add_(v.sum())


_energies = Compiled(_energies_at_once, plainly=_energies_in_blocks)


def add_energy_gradients(
    gradient: Float[Tensor, "B N L"],
    queries: Float[Tensor, "B N A"],
    keys: Float[Tensor, "B L A"],
    direction: Float[Tensor, "1 A"],
    keys_gradient: Float[Tensor, "B L A"],
    direction_gradient: Float[Tensor, "1 A"],
) -> Float[Tensor, "B N A"]:
    """The gradient of the queries; those of the exponential keys and of v are added in place.

    With r as above, the derivative of tanh is 4 r (1 - r), and that of exp(2 k) is twice itself.
    """
    return _gradients(gradient, queries, keys, direction, keys_gradient, direction_gradient)


def _gradients_at_once(
    gradient: Tensor,
    queries: Tensor,
    keys: Tensor,
    direction: Tensor,
    of_keys: Tensor,
    of_direction: Tensor,
) -> Tensor:
    g = gradient.to(keys.dtype)[..., None]
    asked, v = exponential(queries), direction[0].to(keys.dtype)
    r = 1 / (1 + asked[:, :, None] * keys[:, None])
    by_region = g * r
    once, twice = by_region.sum(2), (by_region * r).sum(2)
    of_keys += (by_region - by_region * r).sum(1) * (2 * v) / keys
    of_direction += gradient.sum() - 2 * once.sum((0, 1))
    return ((once - twice) * (4 * v)).to(queries.dtype)


def _gradients_in_blocks(
    gradient: Tensor,
    queries: Tensor,
    keys: Tensor,
    direction: Tensor,
    of_keys: Tensor,
    of_direction: Tensor,
) -> Tensor:
    gradient = gradient.to(keys.dtype)
    asked, v = exponential(queries), direction[0].to(keys.dtype)
    of_queries = torch.empty_like(asked)
    of_v = torch.zeros_like(v)
    for r, g, k, of_q, of_k in _blocks(asked, keys, gradient, keys, of_queries, of_keys):
        of_v += g.flatten() @ r.flatten(0, 2)
        slope = torch.addcmul(r, r, r, value=-1, out=r)
        slope *= g[..., None]
        torch.sum(slope, dim=2, out=of_q)
        of_k.addcdiv_(slope.sum(1).mul_(v), k, value=2)
    of_direction += gradient.sum() - 2 * of_v
    return of_queries.mul_(4 * v).to(queries.dtype)


_gradients = Compiled(_gradients_at_once, plainly=_gradients_in_blocks)


def _blocks(
    asked: Float[Tensor, "B N A"], keys: Float[Tensor, "B L A"], *others: Shaped[Tensor, "B ..."]
) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of b images: r, (b, N, L, A), and the other tensors; the next block overwrites r."""
    images, captions, width = asked.shape
    size = images  # a GPU takes all images at once
    if asked.device.type == "cpu":
        size = max(1, min(images, BLOCK // (captions * keys.shape[1] * width)))
    r = keys.new_empty(size, captions, keys.shape[1], width)
    one = keys.new_ones(())
    parts = (part.split(size) for part in (asked[:, :, None], keys[:, None], *others))
    for query, key, *rest in zip(*parts, strict=True):
        here = r[: len(query)]
        torch.addcmul(one, query, key, out=here)
        yield here.reciprocal_(), *rest
