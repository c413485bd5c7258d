"""Attention weights as maps: the decoder's own, and those of every layer and head.

Shapes: B images, N captions per image, L regions, T words, W width of all heads together.
"""

import copy

import torch
from torch import Tensor

from captioning.maps.captioned import Captioned, Maps
from captioning.models import Decoder, LSTMDecoder, TransformerDecoder
from captioning.models.attention import MultiHead, masked_softmax


def attention_map(captioned: Captioned) -> Maps:
    """The attention weights while the word was written (Xu et al. 2015, eq. 4-6).

    They are computed before the word is known. With several heads it is the mean of all heads, in
    a transformer those of the last layer. Cost: one pass over the caption.
    """
    return captioned.attention.unflatten(-1, captioned.grid)


def head_names(decoder: Decoder) -> tuple[str, ...]:
    """Names of the maps of a decoder's heads; empty if its attention has a single head.

    ``head 1``, ``head 2``, ... of an LSTM decoder with multi-head attention; ``layer 1 mean``,
    ``layer 1 head 1``, ... of a transformer.
    """
    return tuple(_heads(decoder))


@torch.no_grad()
def head_map(captioned: Captioned, name: str) -> Maps:
    """The attention weights of one of the decoder's `head_names` (Vaswani et al. 2017, eq. 1).

    Computed from the queries and keys that pass through the attention. Cost: one pass over the
    caption.
    """
    decoder = copy.deepcopy(captioned.model.decoder)  # whose hooks no other thread calls
    attention, heads = _heads(decoder)[name]
    queries: list[Tensor] = []
    keys: list[Tensor] = []
    for layer, kept in ((attention.query, queries), (attention.key, keys)):
        layer.register_forward_hook(lambda _, __, output, kept=kept: kept.append(output))
    memory = decoder.remember(captioned.regions)
    decoder.teacher_forcing(memory, captioned.tokens[..., :-1])
    captions = captioned.tokens.shape[1]
    # All words of a caption at once, or a word at a time: (B, N T, W) either way.
    query = torch.cat([part.unflatten(1, (captions, -1)) for part in queries], dim=2).flatten(1, 2)
    queries_by_head, keys_by_head = (
        part.unflatten(-1, (attention.heads, -1)).transpose(1, 2) for part in (query, *keys)
    )
    scores = queries_by_head @ keys_by_head.transpose(2, 3)
    weights = masked_softmax(scores / queries_by_head.shape[3] ** 0.5)
    of_heads = weights[:, heads].mean(dim=1)  # (B, N T, L)
    return of_heads.unflatten(1, (captions, -1)).unflatten(-1, captioned.grid)


def _heads(decoder: Decoder) -> dict[str, tuple[MultiHead, slice]]:
    """The attention and the heads whose mean weights each map shows, by the map's name."""
    parts: dict[str, MultiHead] = {}
    if isinstance(decoder, TransformerDecoder):
        layers = enumerate(decoder.layers, start=1)
        parts = {f"layer {number} ": layer.cross_attention for number, layer in layers}
    elif isinstance(decoder, LSTMDecoder):
        for inner in decoder.attention.modules():
            if isinstance(inner, MultiHead):
                parts[""] = inner
    found = {}
    for layer, part in parts.items():
        if layer:
            found[f"{layer}mean"] = part, slice(None)
        found |= {f"{layer}head {n + 1}": (part, slice(n, n + 1)) for n in range(part.heads)}
    return found
