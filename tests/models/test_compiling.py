"""The encoder and a training step of the plain model are one graph for torch.compile."""

import subprocess
import sys

import pytest

STEP = """
import torch
from captioning.models import Adapter, CNNEncoder, Model
from captioning.models.losses import cross_entropy, doubly_stochastic_penalty
from tests.fixtures import DECODERS

def step(model, images, tokens):
    logits, weights = model(model.encode(images), tokens[..., :-1])
    loss = cross_entropy(logits, tokens[..., 1:], 0.1)
    return loss + doubly_stochastic_penalty(weights, tokens[..., 1:] != 0)

images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
tokens = torch.randint(1, 8, (2, 3, 4))
for name, decoder in DECODERS.items():
    encoder = CNNEncoder("timm/tf_efficientnet_lite0", None, trainable_stages=2)
    adapter = Adapter(encoder.annotation_dim, 6, 0.1, True, region_layers=1, region_heads=2)
    model = Model(encoder, adapter, decoder(6, 8)).train()
    torch._dynamo.reset()
    torch.compile(step, fullgraph=True, backend="eager")(model, images, tokens).backward()
    print(name)
"""


@pytest.mark.integration
def test_a_training_step_is_one_graph() -> None:
    # A process of its own, since the type checks of tests would break the graph.
    subprocess.run([sys.executable, "-c", STEP], check=True)
