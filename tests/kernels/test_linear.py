import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from captioning.captioner import device
from captioning.kernels import accelerate, accelerate_search, linear
from captioning.search import BeamSearch
from tests.kernels.plain_models import plain_model


@pytest.fixture(params=["oneDNN", "MKL", None])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Products by the private operators of either library, or by PyTorch's own."""
    monkeypatch.setattr(linear, "is_intels", lambda: request.param == "MKL")
    if request.param is None:
        monkeypatch.setattr(linear, "_has_onednn", lambda: False)
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
    ours = nn.Linear(5, 3)
    theirs = nn.Linear(5, 3, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 5)

    def results(layer: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        y = layer(x.requires_grad_())
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().double(), x.grad.double()]

    with linear.packed([ours]):
        found = results(partial(linear.layer, ours), x)
    for mine, wanted in zip(found, results(theirs, x.detach().double()), strict=True):
        assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert_close(mine.grad.double(), wanted.grad, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (40, 4), (161,)])
def test_packed_layers_multiply_any_number_of_rows(shape: tuple[int, ...], bias: bool) -> None:
    layer, x = nn.Linear(70, 90, bias), torch.randn(*shape, 70)
    wanted = x.double() @ layer.weight.double().t()
    wanted = wanted + layer.bias.double() if bias else wanted
    with linear.packed([layer]):
        found = linear.layer(layer, x)
    assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 40, 161])
def test_packed_layers_under_autocast_are_pytorchs(library: str | None, rows: int) -> None:
    layer, x = nn.Linear(70, 90), torch.randn(rows, 70)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = layer(x)
        with linear.packed([layer]):
            assert_close(linear.layer(layer, x), wanted)
            assert_close(linear.layer(layer, x.bfloat16()), wanted)
            is_packed = layer in linear._packed
    assert is_packed == bool(library and linear.multiplies_bfloat16_fast())


def test_weights_are_packed_for_the_library_in_use(library: str | None) -> None:
    layer = nn.Linear(5, 3)
    with linear.packed([layer]):
        found = linear._packed.get(layer)
    assert (found and found.library) == library
    assert layer not in linear._packed  # it is not frozen


def test_weights_stay_packed_until_the_last_of_several_blocks_ends(library: str | None) -> None:
    layer = nn.Linear(5, 3)
    one, other = linear.packed([layer]), linear.packed([layer])  # in two threads
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert (layer in linear._packed) == bool(library)
    other.__exit__(None, None, None)
    assert layer not in linear._packed


@pytest.mark.usefixtures("library")
def test_an_interrupted_block_leaves_no_weight_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, pack = [nn.Linear(5, 3), nn.Linear(3, 2)], linear._pack

    def interrupted(module: nn.Linear) -> None:
        if module is layers[1]:
            raise KeyboardInterrupt
        pack(module)

    with monkeypatch.context() as patched:
        patched.setattr(linear, "_pack", interrupted)
        with pytest.raises(KeyboardInterrupt), linear.packed(layers):
            pass
    with linear.packed(layers):
        pass
    assert not any(layer in linear._packed for layer in layers)


@pytest.mark.usefixtures("library")
def test_layers_made_in_inference_mode_work_inside_and_outside_it() -> None:
    x = torch.ones(2, 5)
    with torch.inference_mode():
        layer = nn.Linear(5, 3)
        wanted = layer(x).clone()
        with linear.packed([layer]):
            assert_close(linear.layer(layer, x), wanted)
    with torch.no_grad(), linear.packed([layer]):
        assert_close(linear.layer(layer, x), wanted)


@torch.no_grad()
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("frozen", [True, False])
def test_a_changed_weight_counts_after_and_between_blocks(frozen: bool) -> None:
    layer, x = nn.Linear(5, 3).requires_grad_(not frozen), torch.ones(2, 5)
    with linear.packed([layer]):
        linear.layer(layer, x)
    layer.weight.zero_()
    assert linear.layer(layer, x).equal(layer.bias.expand(2, 3))
    with linear.packed([layer]):
        assert linear.layer(layer, x).equal(layer.bias.expand(2, 3))


@torch.no_grad()
@pytest.mark.usefixtures("library")
def test_packed_layers_keep_precisions() -> None:
    layer, x = nn.Linear(5, 3), torch.ones(2, 5)
    with linear.packed([layer]), torch.autocast("cpu", torch.bfloat16):
        assert linear.layer(layer, x).dtype == torch.bfloat16
    with linear.packed([layer.double()]):
        assert linear.layer(layer, x.double()).dtype == torch.double


@torch.no_grad()
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("frozen", [True, False])
def test_searches_of_many_captions_find_the_same_by_either_library(frozen: bool) -> None:
    plain = plain_model(vocab_size=50).float().requires_grad_(not frozen)
    fast, search = accelerate(plain), BeamSearch(4, max_length=8)
    annotations = torch.randn(9, 7, 5)
    wanted = search(plain.decoder, plain.remember(annotations))
    for _ in range(2):
        found = accelerate_search(search)(fast.decoder, fast.remember(annotations))
        assert found.tokens.equal(wanted.tokens)
        assert_close(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)
        assert_close(found.weights, wanted.weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("maker", "is_intels"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_linux_names_the_maker(maker: str, is_intels: bool, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: 6\n")
    assert linear.is_intels(cpuinfo) is is_intels


def test_on_other_systems_the_processors_name_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (name, is_intels) in enumerate(
        {"Intel64, GenuineIntel": True, "arm": False}.items()
    ):
        monkeypatch.setattr(platform, "processor", lambda name=name: name)
        assert linear.is_intels(tmp_path / str(number)) is is_intels


@pytest.mark.parametrize(
    ("amx", "avx512", "is_intels", "onednn", "precision"),
    [
        (True, True, True, True, "bf16-mixed"),
        (False, True, False, True, "bf16-mixed"),
        (False, True, True, True, "32-true"),  # AMX hidden by a virtual machine
        (False, True, False, False, "32-true"),  # AVX-512 hidden from oneDNN
        (None, None, False, True, "32-true"),  # a PyTorch without these queries
    ],
)
def test_trainings_run_in_the_precision_that_the_processor_is_fast_at(
    amx: bool | None,
    avx512: bool | None,
    is_intels: bool,
    onednn: bool,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, has in (("_is_amx_tile_supported", amx), ("_is_avx512_bf16_supported", avx512)):
        if has is None:
            monkeypatch.delattr(torch.cpu, name, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda has=has: has, raising=False)
    monkeypatch.setattr(linear, "is_intels", lambda: is_intels)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    assert device.fast_precision() == precision


@pytest.mark.integration
def test_a_onednn_limited_to_avx2_multiplies_no_bfloat16_fast() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from captioning.kernels import *; print(multiplies_bfloat16_fast())",
        ],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
