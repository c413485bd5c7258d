from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from captioning.device import multiplies_bfloat16_fast
from captioning.kernels import accelerate, linear
from captioning.search import BeamSearch
from tests.kernels.plain_models import plain_model


@pytest.fixture(params=["oneDNN", "MKL", None])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Products by the private operators of either library, or by PyTorch's own."""
    monkeypatch.setattr(linear, "is_intels", lambda: request.param == "MKL")
    if request.param is None:
        monkeypatch.setattr(linear, "_has", lambda *names: False)
    x = torch.ones(2, 2)
    if linear.fast_library(x, x) != request.param:
        pytest.skip(f"this PyTorch has no {request.param}")
    return request.param


@pytest.mark.usefixtures("library")
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


@pytest.mark.usefixtures("library")
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
    library: str | None, shape: tuple[int, ...], bias: bool
) -> None:
    layer, x = nn.Linear(70, 90, bias).requires_grad_(False), torch.randn(*shape, 70)
    wanted = x.double() @ layer.weight.double().t()
    wanted = wanted + layer.bias.double() if bias else wanted
    assert_close(linear.layer(layer, x).double(), wanted, rtol=1e-5, atol=1e-5)
    assert (layer in linear._packed) == bool(library)
    layer.weight.zero_()
    assert not (linear.layer(layer, x) - (layer.bias if bias else 0)).any()
    assert linear.layer(layer.double(), x.double()).dtype == torch.double


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 40, 161])
def test_packed_layers_under_autocast_are_pytorchs(library: str | None, rows: int) -> None:
    layer, x = nn.Linear(70, 90).requires_grad_(False), torch.randn(rows, 70)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = layer(x)
        assert_close(linear.layer(layer, x), wanted)
        assert_close(linear.layer(layer, x.bfloat16()), wanted)
    assert (layer in linear._packed) == bool(library and multiplies_bfloat16_fast())


@torch.no_grad()
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("frozen", [True, False])
def test_searches_find_the_same_by_either_library(frozen: bool) -> None:
    plain = plain_model(vocab_size=50).float().requires_grad_(not frozen)
    fast, search = accelerate(plain), BeamSearch(4, max_length=8)
    annotations = torch.randn(9, 7, 5)
    wanted = search(plain.decoder, plain.remember(annotations))
    for _ in range(2):
        found = search(fast.decoder, fast.remember(annotations))
        assert found.tokens.equal(wanted.tokens)
        assert_close(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)
        assert_close(found.weights, wanted.weights, rtol=1e-4, atol=1e-4)
