"""Models on a GPU: its numbers where there is one, and without one what needs no values.

Tensors that only claim to be on a GPU have shapes and devices but no values. A tensor that was made
on the wrong device fails as it would there, and what the host waits for can be counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import BOS, PAD, Vocabulary
from captioning.kernels import caption_cross_entropy
from captioning.maps import MAPS, word_maps
from captioning.maps.captioned import CaptionedBatch
from captioning.models import Adapter, CNNEncoder, Decoder, Model
from captioning.models.encoder import FrozenStages
from captioning.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    DiverseBeamSearch,
    Greedy,
    Sampling,
    Search,
)
from captioning.training import CrossEntropy
from tests.fixtures import DECODERS

LENGTH = 6

SEARCHES: dict[str, Search] = {
    "greedy": Greedy(max_length=LENGTH),
    "beam": BeamSearch(3, max_length=LENGTH),
    "beam with limits": BeamSearch(3, max_length=LENGTH, min_length=2, no_repeat_ngram=2),
    "sampling": Sampling(3, max_length=LENGTH, seed=1).for_images([b"a", b"b", b"c"]),
    "nucleus": Sampling(3, top_p=0.9, max_length=LENGTH, seed=1).for_images([b"a", b"b", b"c"]),
    "diverse": DiverseBeamSearch(groups=2, max_length=LENGTH),
    "constrained": ConstrainedBeamSearch(
        begin=(4,), avoid=[(5,)], must_say=[(6, 7)], max_length=LENGTH
    ),
}

GRADIENTS = ("gradient", "grad-cam")
"""Maps of gradients; PyTorch asks a real device for those."""

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class HostWaits(TorchDispatchMode):
    """Counts what the host waits for: a value of a GPU's, or a copy from or to its own memory.

    Args:
        answer: what conditions on values are.
    """

    def __init__(self, answer: bool = False) -> None:
        super().__init__()
        self.answer = answer
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Do as without this mode, but answer where a value is needed."""
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        devices = {part.device.type for part in args if isinstance(part, Tensor)}
        if "device" in kwargs and name == "_to_copy":
            devices.add(torch.device(kwargs["device"]).type)
        if name in ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "equal") or (
            name in ("_to_copy", "copy_") and len(devices) == 2
        ):
            self.seen.append(name)
        if name == "_local_scalar_dense":
            return self.answer if args[0].dtype == torch.bool else 0
        return func(*args, **kwargs)


@contextmanager
def gpu_without_values(answer: bool = False) -> Iterator[HostWaits]:
    """Let new tensors claim to be on a GPU, and count what the host waits for."""
    without = FakeTensorMode(allow_non_fake_inputs=True)
    with without, torch.device("cuda"), HostWaits(answer) as waits:
        yield waits


def written(device: str = "cuda") -> Tensor:
    """Captions of different lengths, (3, 2, 6)."""
    tokens = torch.full((3, 2, LENGTH), 5, device=device)
    tokens[..., 0] = BOS
    tokens[1:, 1, 3:] = PAD
    return tokens


def whole(decoder: str = "additive") -> Captioner:
    """A captioner with this decoder, which sees 32 x 32 pixels."""
    encoder = CNNEncoder("small", weights=None)
    adapter = Adapter(encoder.annotation_dim, projection_dim=6)
    model = Model(encoder, adapter, DECODERS[decoder](6, 10))
    words = Vocabulary(["a", "red", "blue", "circle", "square", "star"])
    return Captioner(model, words, Preprocessing(32))


def without_values(captioner: Captioner) -> Captioner:
    """The captioner with parameters that claim to be on a GPU."""
    captioner.model.to_empty(device="cuda")
    captioner.network.kernels = False  # which have no use on a GPU
    return captioner


@pytest.mark.parametrize(
    ("decoder", "search"),
    [(decoder, "beam") for decoder in DECODERS]
    + [("additive", search) for search in SEARCHES if search != "beam"],
)
def test_a_search_on_a_gpu_waits_once_a_word(decoder: str, search: str) -> None:
    captioner, chosen = whole(decoder), deepcopy(SEARCHES[search])
    with gpu_without_values() as waits:
        without_values(captioner)
        annotations = captioner.network.encode(torch.zeros(3, 3, 32, 32, dtype=torch.uint8))
        waits.seen.clear()
        decoded = captioner.find_captions(annotations, chosen)
    groups = 2 if search == "diverse" else 1
    begins = {"sampling": 1, "nucleus": 1, "constrained": 3}.get(search, 0)  # random numbers, table
    assert decoded.tokens.device.type == "cuda"
    assert waits.seen.count("_local_scalar_dense") == LENGTH * groups
    assert len(waits.seen) <= LENGTH * groups + begins


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_loss_of_a_training_step_on_a_gpu_waits_for_nothing(decoder: str) -> None:
    captioner = whole(decoder)
    with gpu_without_values() as waits:
        without_values(captioner)
        model = captioner.model.train()
        images, tokens = torch.zeros(3, 3, 32, 32, dtype=torch.uint8), written()
        waits.seen.clear()
        loss = CrossEntropy()(model, model.encode(images), Batch(images, tokens, []))
        assert loss.total.device.type == "cuda"
    assert not waits.seen


def test_encoders_compute_channels_last_on_every_device() -> None:
    encoder, seen = CNNEncoder("mobilenet_v2", weights=None, trainable_stages=2), []
    for layer in encoder.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda layer, x, y: seen.extend([*x, y]))
    constant = encoder.frozen_part
    assert isinstance(constant, FrozenStages)
    encoder.trained_part(constant(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)))
    assert len(seen) > 100
    moved = [each for each in encoder.to("meta").parameters() if each.dim() == 4]
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in seen + moved)


@pytest.mark.parametrize("name", [name for name in MAPS if name not in GRADIENTS])
def test_maps_on_a_gpu_are_made_there(name: str) -> None:
    captioner = whole()
    with gpu_without_values(answer=True):
        without_values(captioner)
        images = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
        with torch.no_grad():
            annotations = captioner.network.encode(images)
            adapted = captioner.model.adapter(annotations)
            batch = CaptionedBatch(captioner.model, images, annotations, adapted, written())
            found = word_maps(name, batch)
    assert found.device.type == "cuda"


def results(decoder: Decoder, device: str) -> list[Tensor]:
    """Loss, gradients and captions."""
    annotations = torch.randn(3, 9, 6, generator=torch.Generator().manual_seed(2)).double()
    memory = decoder.to(device).remember(annotations.to(device))
    loss, weights = caption_cross_entropy(decoder, memory, written(device), 0.1)
    gradients = torch.autograd.grad(loss + weights.square().sum(), [*decoder.parameters()])
    with torch.no_grad():
        captions = [part for kind in deepcopy(SEARCHES).values() for part in kind(decoder, memory)]
    return [part.cpu() for part in (loss, weights, *gradients, *captions)]


@needs_gpu
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_gpu_gives_the_numbers_of_a_cpu(decoder: str) -> None:
    torch.manual_seed(0)
    made = DECODERS[decoder](6, 10).double().eval()
    torch.testing.assert_close(results(made, "cuda"), results(made, "cpu"))


@needs_gpu
def test_an_encoder_on_a_gpu_gives_the_numbers_of_a_cpu() -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder("mobilenet_v2", weights=None).eval()
    images = torch.randint(256, (3, 3, 96, 96), dtype=torch.uint8)
    with torch.no_grad():
        expected = encoder(images)
        found = encoder.to("cuda")(images.to("cuda")).cpu()
    error = (found - expected).norm() / expected.norm()
    assert error < 1e-4
