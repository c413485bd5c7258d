import pytest
import torch

from captioning import device


@pytest.mark.parametrize(
    ("amx", "avx512", "is_intel", "onednn", "precision"),
    [
        (True, True, True, True, "bf16-mixed"),
        (False, True, False, True, "bf16-mixed"),
        (False, True, True, True, "32-true"),  # AMX hidden by a virtual machine
        (False, True, False, False, "32-true"),  # AVX-512 hidden from oneDNN
        (None, None, False, True, "32-true"),  # a PyTorch without these queries
    ],
)
def test_trainings_run_in_the_precision_that_is_fast(
    amx: bool | None,
    avx512: bool | None,
    is_intel: bool,
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
    monkeypatch.setattr(device, "is_intel", lambda: is_intel)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    assert device.fast_precision() == precision
