import copy

import torch
from torch import nn

from captioning.kernels.depthwise import PreciseDepthwise, keep_depthwise_precise


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 2, 1)
    )


def test_output_and_gradients_equal_the_plain_networks() -> None:
    plain, images = network(), torch.rand(2, 3, 6, 6)
    fast = copy.deepcopy(plain)
    keep_depthwise_precise(fast)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    for each in (plain, fast):
        each(images).square().sum().backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)


def test_under_autocast_only_depthwise_convolutions_are_in_single_precision() -> None:
    fast = network()
    keep_depthwise_precise(fast)
    assert [type(part) is PreciseDepthwise for part in fast] == [False, True, False]
    with torch.autocast("cpu", torch.bfloat16):
        first = fast[0](torch.rand(1, 3, 4, 4))
        second = fast[1](first)
        assert (first.dtype, second.dtype, fast[2](second).dtype) == (
            torch.bfloat16,
            torch.float32,
            torch.bfloat16,
        )


def test_frozen_layers_and_subclasses_stay_as_they_are() -> None:
    class Mine(nn.Conv2d):
        pass

    frozen = nn.Conv2d(4, 4, 3, groups=4).requires_grad_(False)
    both = nn.Sequential(frozen, Mine(4, 4, 3, groups=4))
    keep_depthwise_precise(both)
    assert [type(part) for part in both] == [nn.Conv2d, Mine]
