from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from captioning.captioner.ensemble_decoder import EnsembleDecoder
from captioning.kernels import accelerated, accelerated_search, linear
from captioning.kernels.packing import packed_weights
from captioning.models import LSTMDecoder
from captioning.search import BeamSearch


@pytest.fixture(params=[True, False], ids=["Intel", "other"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of either kind: MKL multiplies on one and oneDNN on the other."""
    monkeypatch.setattr(linear, "is_intels", lambda: request.param)


@pytest.mark.usefixtures("processor")
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


@pytest.mark.usefixtures("processor")
def test_layers_and_their_gradients_are_pytorchs() -> None:
    ours = torch.nn.Linear(5, 3)
    theirs = torch.nn.Linear(5, 3, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 5)

    def results(layer: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        y = layer(x.requires_grad_())
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().double(), x.grad.double()]

    for mine, wanted in zip(
        results(partial(linear.layer, ours), x), results(theirs, x.detach().double()), strict=True
    ):
        assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert_close(mine.grad.double(), wanted.grad, rtol=1e-5, atol=1e-5)


def test_only_single_precision_on_other_processors_is_multiplied_by_onednn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if linear._ONEDNN is None or not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    calls = []
    monkeypatch.setattr(
        linear, "_multiplied", lambda x, weight, bias: calls.append(x.dtype) or x @ weight.t()
    )
    for is_intels in True, False:
        monkeypatch.setattr(linear, "is_intels", lambda value=is_intels: value)
        for dtype in torch.float32, torch.float64, torch.bfloat16:
            linear.product(torch.ones(2, 3, dtype=dtype), torch.ones(4, 3, dtype=dtype))
    assert calls == [torch.float32]


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are packed, as on a processor of Intel's."""
    if None in (linear._PACKED, linear._MULTIPLIED_PACKED) or not torch.backends.mkl.is_available():
        pytest.skip("this PyTorch has no MKL")
    monkeypatch.setattr(linear, "is_intels", lambda: True)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (5,), (16,), (40, 3), (160,), (161,)])
def test_packed_layers_multiply_any_number_of_rows(
    shape: tuple[int, ...], bias: bool, packing: None
) -> None:
    layer = torch.nn.Linear(70, 90, bias)
    x = torch.randn(*shape, 70)
    wanted = torch.nn.functional.linear(
        x.double(), layer.weight.double(), layer.bias.double() if bias else None
    )
    with linear.packed([layer]):
        found = linear.layer(layer, x)
    assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    assert_close(linear.layer(layer, x).double(), wanted, rtol=1e-5, atol=1e-5)


def test_packed_weights_are_released_even_after_an_error(packing: None) -> None:
    layer = torch.nn.Linear(5, 3)
    with pytest.raises(KeyError), linear.packed([layer]):
        raise KeyError
    with torch.no_grad():
        layer.weight.zero_()
        assert linear.layer(layer, torch.ones(2, 5)).equal(layer.bias.expand(2, 3))


def test_packed_layers_keep_gradients_and_precisions(packing: None) -> None:
    layer, x = torch.nn.Linear(5, 3), torch.ones(2, 5)
    with linear.packed([layer]):
        linear.layer(layer, x).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.equal(torch.full((3, 5), 2.0))
    with torch.no_grad():
        with linear.packed([layer.double()]):
            assert linear.layer(layer, x.double()).dtype == torch.double
        with torch.autocast("cpu", torch.bfloat16), linear.packed([layer.float()]):
            assert linear.layer(layer, x).dtype == torch.bfloat16
        with linear.packed([layer]), torch.autocast("cpu", torch.bfloat16):
            assert linear.layer(layer, x).dtype == torch.bfloat16


@torch.no_grad()
@pytest.mark.parametrize("members", [1, 2])
def test_a_search_with_packed_weights_finds_the_same(members: int, packing: None) -> None:
    torch.manual_seed(0)
    parts = [LSTMDecoder(5, 50, 8, 9, 6).eval() for _ in range(members)]
    for part in parts:
        for parameter in part.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    fast = [accelerated(part) for part in parts]
    regions = [slice(None)] * members
    decoder = EnsembleDecoder(fast, regions) if members > 1 else fast[0]
    search = accelerated_search(BeamSearch(4, max_length=8))
    memory = decoder.remember(torch.randn(3, 7, 5))
    wanted = search(decoder, memory)
    with packed_weights(decoder):
        with packed_weights(decoder):
            pass  # ends nothing outside
        found = search(decoder, memory)
    assert found.tokens.equal(wanted.tokens)
    assert_close(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)
    assert_close(found.weights, wanted.weights, rtol=1e-4, atol=1e-4)
