from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from captioning.device import multiplies_bfloat16_fast
from captioning.kernels import linear


@pytest.fixture(params=[True, False], ids=["oneDNN", "PyTorch"])
def by_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Products by oneDNN's private operators, or by PyTorch's own."""
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(linear, "_has_onednn", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("by_onednn")
@pytest.mark.parametrize("is_transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("width", [3, 9])
def test_products_are_exact_up_to_rounding(is_transposed: bool, width: int) -> None:
    x, weight = torch.randn(7, 5), torch.randn(width, 5)
    if is_transposed:
        x, weight = x.t().contiguous().t(), weight.t().contiguous().t()
    wanted = x.double() @ weight.double().t()
    assert_close(linear.product(x, weight).double(), wanted, rtol=1e-5, atol=1e-5)
    y = torch.randn(7, width)
    wanted = x.double().t() @ y.double()
    assert_close(linear.transposed_product(x, y).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("by_onednn")
def test_layers_and_their_gradients_are_pytorchs() -> None:
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 5)

    def results(layer: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        y = layer(x.requires_grad_())
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().double(), x.grad.double()]

    found = results(partial(linear.layer, ours), x)
    for mine, wanted in zip(found, results(theirs, x.detach().double()), strict=True):
        assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert_close(mine.grad.double(), wanted.grad, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (40, 4), (161,)])
def test_frozen_layers_multiply_by_packed_weights(
    by_onednn: bool, shape: tuple[int, ...], bias: bool
) -> None:
    layer, x = nn.Linear(70, 90, bias).requires_grad_(False), torch.randn(*shape, 70)
    wanted = x.double() @ layer.weight.double().t()
    wanted = wanted + layer.bias.double() if bias else wanted
    assert_close(linear.layer(layer, x).double(), wanted, rtol=1e-5, atol=1e-5)
    assert (layer in linear._packed) == by_onednn
    layer.weight.zero_()
    assert not (linear.layer(layer, x) - (layer.bias if bias else 0)).any()
    assert linear.layer(layer.double(), x.double()).dtype == torch.double


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 40, 161])
def test_packed_layers_under_autocast_are_pytorchs(by_onednn: bool, rows: int) -> None:
    layer, x = nn.Linear(70, 90).requires_grad_(False), torch.randn(rows, 70)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = layer(x)
        assert_close(linear.layer(layer, x), wanted)
        assert_close(linear.layer(layer, x.bfloat16()), wanted)
    assert (layer in linear._packed) == (by_onednn and multiplies_bfloat16_fast())
