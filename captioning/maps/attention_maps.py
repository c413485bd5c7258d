"""Attention weights as maps: of the whole decoder, and of every layer and head.

Shapes: B images, N captions per image, L regions, T words, W width of all heads together.
"""

import copy

import torch
from torch import Tensor

from captioning.maps.captioned import CaptionedBatch, Maps
from captioning.models import Decoder, LSTMDecoder, TransformerDecoder
from captioning.models.attention import MultiHead, masked_softmax


def attention_map(batch: CaptionedBatch) -> Maps:
    """Return the attention weights of each word (Xu et al. 2015, eq. 4-6).

    They are computed before the word is known. Several heads are averaged; of a transformer, the
    last layer is used. Cost: one pass over the caption.
    """
    return batch.attention.unflatten(-1, batch.grid)


def head_names(decoder: Decoder) -> tuple[str, ...]:
    """Return the names of the maps of a decoder's heads; empty if its attention has one head.

    ``head 1``, ``head 2``, ... of an LSTM decoder with multi-head attention; ``layer 1 mean``,
    ``layer 1 head 1``, ... of a transformer.
    """
    return tuple(_heads(decoder))


@torch.no_grad()
def head_map(name: str, batch: CaptionedBatch) -> Maps:
    """Compute the attention weights of one of `head_names` (Vaswani et al. 2017, eq. 1).

    They follow from the queries and keys that the decoder computes. Cost: one pass over the
    caption.
    """
    decoder = copy.deepcopy(batch.model.decoder)  # so that other threads do not call the hooks
    attention, heads = _heads(decoder)[name]
    queries: list[Tensor] = []
    keys: list[Tensor] = []
    attention.query.register_forward_hook(lambda _, __, output: queries.append(output))
    attention.key.register_forward_hook(lambda _, __, output: keys.append(output))
    memory = decoder.remember(batch.adapted)
    decoder.teacher_forcing(memory, batch.tokens[..., :-1])
    captions = batch.tokens.shape[1]
    # A call of the decoder has all words of a caption or one: (B, N T, W) either way.
    words = torch.cat([query.unflatten(1, (captions, -1)) for query in queries], dim=2)
    [image_keys] = keys
    queries_by_head, keys_by_head = (
        vectors.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        for vectors in (words.flatten(1, 2), image_keys)
    )
    scores = queries_by_head @ keys_by_head.transpose(2, 3)
    weights = masked_softmax(scores / queries_by_head.shape[3] ** 0.5)
    head_weights = weights[:, heads].mean(dim=1)  # (B, N T, L)
    return head_weights.unflatten(1, (captions, -1)).unflatten(-1, batch.grid)


def _heads(decoder: Decoder) -> dict[str, tuple[MultiHead, slice]]:
    """Map the name of each map to an attention and the heads whose mean weights it shows."""
    heads: dict[str, tuple[MultiHead, slice]] = {}
    if isinstance(decoder, TransformerDecoder):
        for number, layer in enumerate(decoder.layers, start=1):
            heads[f"layer {number} mean"] = layer.cross_attention, slice(None)
            heads |= _single_heads(layer.cross_attention, f"layer {number} ")
    elif isinstance(decoder, LSTMDecoder):
        for module in decoder.attention.modules():
            if isinstance(module, MultiHead):
                heads |= _single_heads(module)
    return heads


def _single_heads(attention: MultiHead, prefix: str = "") -> dict[str, tuple[MultiHead, slice]]:
    return {f"{prefix}head {n + 1}": (attention, slice(n, n + 1)) for n in range(attention.heads)}
