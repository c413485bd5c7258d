import subprocess
import sys

import pytest
import torch
from torch import nn

from captioning.models import CNNEncoder, LSTMDecoder
from captioning.startup import WithoutRandomStart


@pytest.mark.parametrize("backbone", ["small", "mobilenet_v2", "resnet18", "vgg16"])
def test_nothing_random_is_drawn_for_parameters_that_will_be_loaded(backbone: str) -> None:
    before = torch.get_rng_state()
    with WithoutRandomStart():
        encoder = CNNEncoder(backbone, weights=None)
        LSTMDecoder(encoder.annotation_dim, 8, 16, 16, 16, projection_dim=8)
    assert torch.get_rng_state().equal(before)


def test_values_that_are_not_random_are_set_as_ever() -> None:
    with WithoutRandomStart():
        norm = nn.BatchNorm2d(3)
        nn.init.constant_(norm.bias, 7.0)
    assert norm.weight.tolist() == [1, 1, 1]
    assert norm.bias.tolist() == [7, 7, 7]


def test_other_tensors_are_drawn_as_ever() -> None:
    torch.manual_seed(5)
    expected = torch.empty(4).normal_()
    torch.manual_seed(5)
    with WithoutRandomStart():
        drawn = torch.empty(4).normal_()
    assert drawn.equal(expected)


def test_a_draw_that_is_repeated_until_it_fits_comes_to_an_end() -> None:
    with WithoutRandomStart():
        parameter = nn.Parameter(torch.full((50,), 9.0))
        nn.init.trunc_normal_(parameter)
    assert not (parameter.abs() > 2).any()


def test_outside_parameters_are_random_again() -> None:
    with WithoutRandomStart():
        nn.Linear(2, 2)
    assert not nn.Linear(8, 8).weight.equal(nn.Linear(8, 8).weight)


def test_torchvision_is_imported_without_the_compiler_which_works_when_it_is_wanted() -> None:
    script = """
import sys, torch
from captioning.startup import torchvision_models
assert torchvision_models().resnet18 is not None
assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "sympy"))]
from torchvision.ops import roi_align
box = torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0]])
assert roi_align(torch.ones(1, 1, 8, 8), box, 1).item() == 1
assert sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu") in (True, False)
assert sys.modules["torch._dynamo.utils"].__file__
"""
    subprocess.run([sys.executable, "-c", script], check=True)
