"""Which models have kernels: exactly the plain classes, with nothing changed."""

import logging
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from captioning.data.vocabulary import BOS, EOS
from captioning.kernels import accelerate
from captioning.kernels.fast_lstm import FastLSTM
from captioning.models import (
    Adapter,
    CNNEncoder,
    HardAttention,
    LSTMDecoder,
    Model,
    MultiHeadAttention,
    TransformerDecoder,
)
from captioning.models.decoder import State
from tests.kernels.plain_models import plain_model

TOKENS = torch.tensor([[[BOS, 4, 5, 6, EOS], [BOS, 7, 7, 5, EOS]]] * 3)


class Backwards(LSTMDecoder):
    def start(self, memory: object, n: int) -> State:
        return {name: -part for name, part in super().start(memory, n).items()}


class Doubled(nn.Linear):
    pass


def changed(name: str, layer: nn.Module) -> Model:
    """A model with another layer in its decoder."""
    model = plain_model()
    model.decoder.set_submodule(name, layer.double())
    return model


def with_hook(model: Model) -> Model:
    model.decoder.attention.register_forward_hook(lambda *_: None)
    return model


def test_the_accelerated_model_shares_all_parameters() -> None:
    plain = plain_model()
    fast = accelerate(plain)
    assert isinstance(fast.decoder, FastLSTM)
    assert type(plain.decoder) is LSTMDecoder
    for mine, its in zip(fast.parameters(), plain.parameters(), strict=True):
        assert mine is its


def test_a_frozen_model_gets_a_folded_encoder() -> None:
    encoder = CNNEncoder("small", weights=None)
    decoder = LSTMDecoder(encoder.annotation_dim, 9, 6, 7, 4)
    plain = Model(encoder, Adapter(encoder.annotation_dim), decoder).eval()
    assert accelerate(plain).encoder is encoder
    fast = accelerate(plain.requires_grad_(False))
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fast.encoder.modules())
    assert_close(fast.encode(images), plain.encode(images), rtol=1e-4, atol=1e-4)


def test_it_follows_the_plain_model(annotations: Tensor) -> None:
    plain = plain_model(dropout=0.5)
    fast = accelerate(plain)
    before, _ = fast(annotations, TOKENS)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter *= 1.5
    after, _ = fast(annotations, TOKENS)
    assert_close(after, plain(annotations, TOKENS)[0])
    assert not after.allclose(before)
    plain.train()
    assert not fast(annotations, TOKENS)[0].equal(fast(annotations, TOKENS)[0])  # by dropout
    plain.eval().float()
    assert fast(annotations.float(), TOKENS)[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (plain_model(Backwards), "class Backwards: plain PyTorch, because only LSTMDecoder"),
        (plain_model(attention=HardAttention), "attention HardAttention has none"),
        (plain_model(attention=lambda *w: MultiHeadAttention(*w, heads=2)), "MultiHeadAttention"),
        (changed("attention.query", nn.Linear(7, 4)), "query of its AdditiveAttention has a bias"),
        (changed("output", Doubled(6, 8)), "its layer output is a Doubled"),
        (with_hook(plain_model()), "its layer attention has a hook"),
        (
            plain_model(lambda d, v, *_: TransformerDecoder(d, v, width=6, layers=1, heads=2)),
            "TransformerDecoder",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_else_is_computed_plainly_and_one_line_says_why(
    model: Model, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert accelerate(model) is model
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert reason in record.message


@pytest.mark.integration
def test_an_environment_variable_keeps_kernels_unimported() -> None:
    code = """
import sys, captioning, captioning.training
captioner = captioning.load()
assert captioner.network.accelerated is captioner.model
print([name for name in sys.modules if name.startswith("captioning.kernels.")])
"""
    environment = os.environ | {"CAPTIONING_KERNELS": "off"}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"
