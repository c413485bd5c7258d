from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from captioning.models import linear


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
    ours = linear.Linear(5, 3)
    theirs = torch.nn.Linear(5, 3, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 5)

    def results(layer: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        y = layer(x.requires_grad_())
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().double(), x.grad.double()]

    for mine, wanted in zip(results(ours, x), results(theirs, x.detach().double()), strict=True):
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
        monkeypatch.setattr(linear, "is_intels", lambda told=is_intels: told)
        for dtype in torch.float32, torch.float64, torch.bfloat16:
            linear.product(torch.ones(2, 3, dtype=dtype), torch.ones(4, 3, dtype=dtype))
    assert calls == [torch.float32]
