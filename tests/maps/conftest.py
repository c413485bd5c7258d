"""Tiny models in double precision, and captions for them to read."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from jaxtyping import Int
from torch import Tensor, nn

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.maps import CaptionedBatch
from captioning.models import Adapter, Decoder, Model
from captioning.models.decoder import Memory, State, Step
from tests.fixtures import DECODERS, LSTM, Patches, decided

TOKENS = torch.tensor(
    [
        [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]],
        [[BOS, 6, 6, EOS, PAD], [BOS, 5, 4, 7, EOS]],
    ]
)


class Averaging(Decoder):
    """A user's own decoder: scores words by the mean visible vector and the last word."""

    def __init__(self, annotation_dim: int, vocab_size: int) -> None:
        super().__init__(annotation_dim, vocab_size)
        self.words = nn.Linear(annotation_dim, vocab_size)
        self.last = nn.Embedding(vocab_size, vocab_size)

    def start(self, memory: Memory, n: int) -> State:
        return {}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        visible = torch.ones(memory.annotations.shape[:2]).to(memory.annotations)
        if memory.mask is not None:
            visible = visible * memory.mask
        weights = (visible / visible.sum(dim=1, keepdim=True))[:, None]
        weights = weights.expand(-1, tokens.shape[1], -1)
        logits = self.words(weights @ memory.annotations) + self.last(tokens)
        return Step(logits, weights, state)


KINDS: dict[str, Callable[[int, int], Decoder]] = {
    "lstm": LSTM,
    "multi-head": DECODERS["multi-head"],
    "shallow output": partial(LSTM, deep_output=False),
    "transformer": DECODERS["transformer"],
    "user's own": Averaging,
}


def captioned_batch(
    kind: str = "lstm", tokens: Tensor = TOKENS, pixels: int = 32
) -> CaptionedBatch:
    """Images of squares, 4 x 4 by default, with captions and a random model."""
    torch.manual_seed(3)
    model = decided(Model(Patches(), Adapter(5), KINDS[kind](5, 8)))
    colours = torch.randint(256, (len(tokens), 3, pixels // 8, pixels // 8), dtype=torch.uint8)
    images = colours.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    annotations = model.encode(images).detach()
    return CaptionedBatch(model, images, annotations, model.adapter(annotations).detach(), tokens)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of decoder."""
    return request.param
