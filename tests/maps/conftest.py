"""Tiny models in double precision, and captions for them to read."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.maps import Captioned
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.decoder import Memory, State, Step
from tests.conftest import DECODERS, LSTM, decided

TOKENS = torch.tensor(
    [
        [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]],
        [[BOS, 6, 6, EOS, PAD], [BOS, 5, 4, 7, EOS]],
    ]
)


class Patches(Encoder):
    """A linear map of the mean colour of each 8 x 8 pixels."""

    annotation_dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, self.annotation_dim)

    def forward(self, images: Tensor) -> Float[Tensor, "B L D"]:
        colours = F.avg_pool2d(images.to(self.linear.weight) / 255, 8)
        return self.linear(colours.flatten(2).transpose(1, 2))

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height // 8, width // 8


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


def captioned(kind: str = "lstm", tokens: Tensor = TOKENS, pixels: int = 32) -> Captioned:
    """Images of squares, 4 x 4 by default, with captions and a random model."""
    torch.manual_seed(3)
    model = decided(Model(Patches(), Adapter(5), KINDS[kind](5, 8)))
    colours = torch.randint(256, (len(tokens), 3, pixels // 8, pixels // 8), dtype=torch.uint8)
    images = colours.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    return Captioned(model, images, model.encode(images).detach(), tokens)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of decoder."""
    return request.param
