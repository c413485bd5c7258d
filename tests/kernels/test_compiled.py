import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from captioning.kernels import compiled
from captioning.kernels.compiled import Compiled, compile_from_now

X = torch.zeros(3, 2)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(compiled._state, "has_warned", False)
    with torch.no_grad():
        yield
    compile_from_now(False)


@pytest.mark.parametrize("trains", [False, True])
def test_what_fails_to_compile_is_computed_plainly(
    caplog: pytest.LogCaptureFixture, trains: bool
) -> None:
    compile_from_now()
    for _ in range(2):
        function = Compiled(lambda x: x + 2 if x.sum() > 0 else x, lambda x: x + 1, trains)
        with caplog.at_level(logging.WARNING), torch.set_grad_enabled(trains):
            assert [int(function(X)[0, 0]) for _ in range(2)] == [1, 1]
    [record] = [record for record in caplog.records if record.name == compiled.__name__]
    assert "cannot compile kernels, so they are slower" in record.message


SETUP = """
import collections

import torch
from captioning import kernels
from captioning.kernels import accelerate, caption_cross_entropy, compiled, linear
from captioning.kernels import encoding_for_training
from captioning.models import Adapter, CNNEncoder, LSTMDecoder, Model
from captioning.search import BeamSearch
from tests.fixtures import DECODERS

def made():
    torch.manual_seed(0)
    encoder = CNNEncoder("small", weights=None)
    return Model(encoder, Adapter(encoder.annotation_dim, 16), LSTMDecoder(16, 30, 16, 16, 8))

def batch(images, captions, regions, words):
    lengths = torch.randint(1, words, (images, captions))
    lengths[0, 0] = words - 1
    tokens = torch.randint(4, 30, (images, captions, words))
    return torch.randn(images, regions, 196), tokens * (torch.arange(words) <= lengths[..., None])
"""

TWICE = """
def results(precision):
    plain = made()
    fast, found = accelerate(plain), []
    for sizes in (3, 4, 5, 7), (2, 3, 30, 5):
        annotations, tokens = batch(*sizes)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            memory = fast.remember(annotations)
            loss, weights = caption_cross_entropy(fast.decoder, memory, tokens, 0.1)
            loss = loss + weights.square().sum()
        plain.zero_grad()
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in plain.decoder.parameters())]
        with torch.no_grad():
            found.append(fast(annotations, tokens[..., :-1])[0])
    return found


for precision in torch.float32, torch.bfloat16:
    compiled.compile_from_now(False)
    plain = results(precision)
    compiled.compile_from_now()
    fast = results(precision)
    if precision == torch.float32:
        for a, b in zip(plain, fast, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(a.abs().max()))
    a, b = (torch.cat([x.flatten() for x in found]) for found in (plain, fast))
    assert (a - b).norm() < 0.01 * a.norm()
    print(int((a != b).sum()), "of", len(a), "differ in their last digits")
"""

COUNTING = """
forms = collections.Counter()
compile = torch.compile

def counting(function, mode, **options):
    def backend(graph, inputs):
        forms[function.__name__] += 1
        return graph

    return compile(function, backend=backend, **options)


torch.compile = counting
"""

MANY_SIZES = """
fast, search = accelerate(made()), BeamSearch(width=3, max_length=6)
compiled.compile_from_now()
for images, words in [(16, 8), (16, 5), (5, 8), (1, 3), (7, 16), (16, 12)]:
    annotations, tokens = batch(images, 5, 25, words)
    loss, weights = caption_cross_entropy(fast.decoder, fast.remember(annotations), tokens, 0.1)
    (loss + weights.sum()).backward()
    with torch.no_grad():
        search(fast.decoder, fast.remember(annotations))
used = {"_energies_at_once", "_gradients_at_once", "next_cell", "cell_gradients"}
used |= {"_transposed"} if linear._has_onednn() else set()
assert forms.keys() == used and max(forms.values()) <= 4, forms
"""

ON_A_GPU = """
kernels.COMPILES = ("cpu",)
compiled.LENGTH_MULTIPLE, compiled.MAX_LENGTH = 2, 2
for decoder in "additive", "transformer":
    forms.clear()
    torch.manual_seed(0)
    encoder = CNNEncoder("small", weights=None, trainable_stages=1)
    model = Model(encoder, Adapter(encoder.annotation_dim, 6), DECODERS[decoder](6, 30)).train()
    fast, encode = model, encoding_for_training(model)
    for images, captions, words in [(4, 5, 2), (4, 5, 1), (4, 3, 2), (2, 5, 1), (4, 5, 3)]:
        pixels = torch.randint(256, (images, 3, 48, 48), dtype=torch.uint8)
        _, tokens = batch(images, captions, 1, words + 1)
        found = []
        for wanted in False, True:
            compiled.compile_from_now(wanted)
            model.zero_grad()
            torch.manual_seed(1)
            memory = fast.remember(encode(pixels))
            loss, weights = caption_cross_entropy(fast.decoder, memory, tokens, 0.1)
            loss = loss + (weights * (tokens[..., 1:, None] > 0)).square().sum()
            loss.backward()
            trained = [p for p in model.parameters() if p.requires_grad]
            found.append([loss.detach(), weights.detach(), *(p.grad for p in trained)])
        if decoder == "additive" or words != 1:  # padding has dropout, too
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    print(decoder, forms["encode"], forms["plain_losses"])
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own: here, signatures are checked, and the checks are not for compiling.
    command = [sys.executable, "-c", SETUP + script]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to compile with")
def test_a_compiled_decoder_computes_the_same() -> None:
    done = run(TWICE)
    assert "slower" not in done.stderr
    counts = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert min(counts) > 0  # so it was compiled
    assert len(counts) == 2


@pytest.mark.integration
def test_batches_of_many_sizes_share_their_compiled_functions() -> None:
    assert "torch._dynamo" not in run(COUNTING + MANY_SIZES).stderr


@pytest.mark.integration
def test_on_a_gpu_a_loss_is_compiled_once_for_few_lengths() -> None:
    done = run(COUNTING + ON_A_GPU)
    assert "slower" not in done.stderr
    assert done.stdout.splitlines() == ["additive 1 1", "transformer 1 1"]
