import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.transforms.v2.functional import normalize

from captioning.captioner import load
from captioning.data.feature_cache import fingerprint
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.models import BACKBONES, CNNEncoder, Encoder
from captioning.models.encoder import measured_offset
from captioning.models.small_network import Coordinates, SmallCNN
from tests.conftest import Served, quick_ones
from tests.fixtures import Patches


def images(height: int = 32, width: int = 32, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (batch, 3, height, width), generator=generator, dtype=torch.uint8)


class Shifted(Encoder):
    """The mean colour of each cell of 4 x 4 pixels, moved by so many pixels down and right."""

    annotation_dim = 3

    def __init__(self, down: int, right: int) -> None:
        super().__init__()
        self.shifts = -down, -right

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height // 4, width // 4

    def forward(self, images: Tensor) -> Tensor:
        moved = images.float().roll(self.shifts, dims=(2, 3))
        return nn.functional.avg_pool2d(moved, 4).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("offset", [(0, 0), (2, -2), (-1, 3)])
def test_an_offset_is_how_far_regions_look_beside_their_cells(offset: tuple[int, int]) -> None:
    encoder = Shifted(*offset)
    assert encoder.offset(32) == pytest.approx(offset, abs=0.3)
    assert encoder.cell_offset(32) == pytest.approx([each / 4 for each in offset], abs=0.1)


def test_an_offset_belongs_to_a_size_and_is_measured_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder("small", weights=None)
    offsets = [encoder.offset(size) for size in (32, 48, 32, 48)]
    assert offsets[:2] == offsets[2:] == [measured_offset(encoder, size) for size in (32, 48)]
    assert offsets[0] != offsets[1]
    assert capsys.readouterr().err.count("measuring where the encoder looks") == 2


def trained_step(encoder: CNNEncoder) -> None:
    """One step of a training that would move everything that it can."""
    encoder.train()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, weight_decay=0.1)
    annotations = encoder(images())
    if annotations.requires_grad:
        annotations.square().sum().backward()
    optimizer.step()


DEEP = {"resnet101", "resnet152", "efficientnet_v2_s"}
OF_TIMM = ["timm/resnet18", "timm/swin_tiny_patch4_window7_224", "timm/convnext_atto"]


@pytest.mark.parametrize(
    "backbone", quick_ones((*BACKBONES, *OF_TIMM), lambda backbone: backbone not in DEEP)
)
def test_each_backbone_gives_one_vector_for_each_region(backbone: str) -> None:
    with torch.device("meta"):  # shapes without the time that the numbers take
        encoder = CNNEncoder(backbone, weights=None).to("meta")
        annotations = encoder(torch.empty(2, 3, 224, 224, dtype=torch.uint8))
    side = {"small": 28, "vgg16": 14, "vgg19": 14}.get(backbone, 7)
    assert encoder.grid(224, 224) == (side, side)
    assert annotations.shape == (2, side * side, encoder.annotation_dim)


@pytest.fixture(scope="module")
def mobilenet() -> Any:
    """A random network whose batch norms know their inputs, or its features would be all zero."""
    torch.manual_seed(0)
    model = models.mobilenet_v2(norm_layer=partial(torch.nn.BatchNorm2d, momentum=1.0))
    with torch.no_grad():
        model(images(64, 96, batch=4) / 128 - 1)
    return model.eval()


@pytest.fixture(scope="module")
def mobilenet_file(mobilenet: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights as torchvision publishes them: the beginning of their hash is in the name."""
    folder = tmp_path_factory.mktemp("weights")
    torch.save(mobilenet.state_dict(), folder / "weights.pth")
    digest = hashlib.sha256((folder / "weights.pth").read_bytes()).hexdigest()
    return (folder / "weights.pth").rename(folder / f"mobilenet_v2-{digest[:8]}.pth")


def assert_same_as(encoder: CNNEncoder, mobilenet: Any) -> None:
    """The vectors are torchvision's own features of images that torchvision normalises."""
    normal = normalize(images(64, 96) / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with torch.no_grad():
        features = mobilenet.features(normal)
        annotations = encoder.eval()(images(64, 96))
    assert features.std() > 0.1
    expected = torch.stack([features[:, :, row, column] for row in (0, 1) for column in (0, 1, 2)])
    torch.testing.assert_close(annotations, expected.transpose(0, 1), rtol=0, atol=5e-3)


def test_weights_come_from_a_file_or_a_download_whose_failure_is_named(
    mobilenet: Any,
    mobilenet_file: Path,
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    published, address = models.MobileNet_V2_Weights.DEFAULT.value, served(mobilenet_file.parent)
    monkeypatch.setattr(published, "url", f"{address}weights-01234567.pth")
    with pytest.raises(InputError, match=f"{published.url}: .*404"):
        CNNEncoder("mobilenet_v2", "DEFAULT")
    monkeypatch.setattr(published, "url", address + mobilenet_file.name)
    for weights in (str(mobilenet_file), "DEFAULT"):
        assert_same_as(CNNEncoder("mobilenet_v2", weights), mobilenet)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://nowhere.invalid"])
@pytest.mark.parametrize("backbone", ["mobilenet_v2", "timm/tf_efficientnet_lite2"])
def test_without_a_network_the_option_of_a_file_is_named_at_once(
    backbone: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_url", lambda *_: f"{address}/file.safetensors")
    monkeypatch.setattr(models.MobileNet_V2_Weights.DEFAULT.value, "url", f"{address}/file.pth")
    began = time.monotonic()
    remedy = f"{address}/.*; give a file: --model.encoder.init_args.weights FILE"
    with pytest.raises(InputError, match=remedy) as caught:
        CNNEncoder(backbone, "DEFAULT")
    assert time.monotonic() - began < 10
    shipped = load("photos").model.encoder.config["backbone"]
    assert ("or photos to start from" in str(caught.value)) == (backbone == shipped)


@pytest.mark.parametrize("weights", ["DEFAULT", "shapes"])
def test_weights_come_from_a_shipped_models_encoder(weights: str) -> None:
    encoder, shipped = CNNEncoder("small", weights), load("shapes").model.encoder
    assert isinstance(shipped, CNNEncoder)
    assert encoder.frozen_part is encoder
    for name, value in shipped.stages.state_dict().items():
        torch.testing.assert_close(encoder.stages.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize(("trainable_stages", "first"), [(0, 2), (1, 1), (-1, 0), (2, 0)])
def test_training_moves_the_last_stages_and_nothing_else(trainable_stages: int, first: int) -> None:
    encoder = CNNEncoder("small", weights=None, trainable_stages=trainable_stages)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    trained_step(encoder)
    moved = {name for name, value in encoder.state_dict().items() if not value.equal(before[name])}
    expected = {
        name for name in before if name.startswith("stages.") and int(name.split(".")[1]) >= first
    }
    assert moved == expected


@pytest.mark.parametrize(
    ("backbone", "trainable_stages"),
    [("small", 0), ("small", 1), ("mobilenet_v2", 1), ("mobilenet_v2", 8)],
)
def test_annotations_can_be_completed_from_what_never_changes(
    backbone: str, trainable_stages: int
) -> None:
    encoder = CNNEncoder(backbone, weights=None, grid=3, trainable_stages=trainable_stages)
    kept = encoder.frozen_part(images())
    assert not kept.requires_grad
    trained_step(encoder)
    assert encoder.frozen_part(images()).equal(kept)
    annotations = encoder(images())
    assert encoder.trained_part(kept).equal(annotations)
    assert annotations.requires_grad == (trainable_stages > 0)


def test_what_never_changes_is_the_same_for_every_trained_rest() -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder("mobilenet_v2", weights=None, trainable_stages=2)
    key = fingerprint(encoder.frozen_part, Preprocessing(32))
    trained_step(encoder)
    assert fingerprint(encoder.frozen_part, Preprocessing(32)) == key
    other = CNNEncoder("mobilenet_v2", weights=None, trainable_stages=3)
    other.load_state_dict(encoder.state_dict())
    assert fingerprint(other.frozen_part, Preprocessing(32)) != key


@pytest.mark.parametrize("with_weights", [True, False])
def test_trained_stages_keep_statistics_that_came_with_weights(
    with_weights: bool, mobilenet_file: Path
) -> None:
    weights = str(mobilenet_file) if with_weights else None
    encoder = CNNEncoder("mobilenet_v2", weights=weights, trainable_stages=2)
    norm = encoder.stages[-1][1]
    before = norm.running_mean.clone()
    encoder.train()
    encoder(images()).square().sum().backward()
    assert norm.running_mean.equal(before) == with_weights
    assert norm.weight.grad.any()


def test_an_encoder_of_ones_own_is_constant_if_it_is_frozen() -> None:
    frozen, trained = Patches(trained=False), Patches()
    assert frozen.frozen_part is frozen
    assert trained.frozen_part is None
    assert frozen.train()(images()).equal(frozen.eval()(images()))  # no dropout: it stays at rest
    assert not trained.train()(images()).equal(trained.eval()(images()))
    assert frozen.trained_part(frozen(images())).equal(frozen(images()))


def test_a_cell_of_the_small_network_looks_at_its_own_middle() -> None:
    torch.manual_seed(0)
    first, last = seen_by(SmallCNN(), 64, 3, 4)
    assert ((first + last) / 2).tolist() == [3 * 8 + 3.5, 4 * 8 + 3.5]


def seen_by(network: SmallCNN, side: int, row: int, column: int, channel: int = 0) -> Any:
    """Row and column of the first and last pixel that a cell's channels from this one depend on."""
    image = torch.rand(1, 3, side, side, requires_grad=True)
    cells = network.eval().features(image)  # of 8 x 8 pixels each
    cells[0, channel:, row, column].sum().backward()
    assert image.grad is not None
    seen = image.grad[0].abs().sum(dim=0).nonzero()
    return seen.amin(dim=0), seen.amax(dim=0)


def test_the_colour_of_a_vector_is_its_cell_s_alone() -> None:
    torch.manual_seed(0)
    first, last = seen_by(SmallCNN(), 64, 3, 4, channel=-4 - 64)
    assert (first.tolist(), last.tolist()) == ([24, 32], [31, 39])


def test_a_query_on_squared_coordinates_can_ask_for_any_one_cell() -> None:
    found = Coordinates(squares=True)(torch.zeros(1, 0, 8, 8))[0].flatten(1)  # (4, cells)
    for row, column in [(0, 0), (2, 5), (7, 3)]:
        y, x = (torch.linspace(-1, 1, 8)[place].item() for place in (row, column))
        scores = torch.tensor([2 * y, 2 * x, -1.0, -1.0]) @ found
        assert scores.argmax() == row * 8 + column
