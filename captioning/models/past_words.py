"""The words that a transformer has read, as keys and values in blocks of a few words.

A new word is joined to the last block alone, or begins one. The plain form is one tensor of all
words that grows by `torch.cat`, which at the fiftieth word copies 49 others: it is what
`joined` gives. Blocks are never written into, so that searches may go on with a state twice.

Shapes: B images, N captions per image, H heads, b words of a block, S words of all blocks, d width
of one head.
"""

from collections.abc import Sequence

import torch

from captioning.models.decoder import State
from captioning.models.multi_head import KeysValues

BLOCK = 16
"""Words after which a new block begins."""


def with_words(blocks: Sequence[KeysValues], new: KeysValues) -> tuple[KeysValues, ...]:
    """The blocks (B, N, H, b, d) with the keys and values of further words."""
    if blocks and blocks[-1].keys.shape[3] < BLOCK:
        return (*blocks[:-1], joined([blocks[-1], new]))
    return (*blocks, new)


def joined(blocks: Sequence[KeysValues]) -> KeysValues:
    """The keys and values (B, N, H, S, d) of all words."""
    return KeysValues(*(torch.cat(parts, dim=3) for parts in zip(*blocks, strict=True)))


def count(blocks: Sequence[KeysValues]) -> int:
    """S."""
    return sum(block.keys.shape[3] for block in blocks)


def as_state(layer: int, blocks: Sequence[KeysValues]) -> State:
    """A layer's blocks by name, such as ``0.1.keys`` for the second block of the first layer."""
    return {
        f"{layer}.{number}.{part}": kept
        for number, block in enumerate(blocks)
        for part, kept in block._asdict().items()
    }


def of_state(layer: int, state: State) -> tuple[KeysValues, ...]:
    """The blocks that `as_state` named."""
    blocks: list[KeysValues] = []
    while f"{layer}.{len(blocks)}.keys" in state:
        parts = (state[f"{layer}.{len(blocks)}.{part}"] for part in KeysValues._fields)
        blocks.append(KeysValues(*parts))
    return tuple(blocks)
