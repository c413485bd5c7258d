import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from captioning.captioner import device
from captioning.kernels import processor


@pytest.mark.parametrize(("maker", "is_intels"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_linux_names_the_maker(maker: str, is_intels: bool, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: 6\n")
    assert processor.is_intels(cpuinfo) is is_intels


@pytest.mark.parametrize(
    ("name", "is_intels"),
    [("Intel64 Family 6 Model 207 Stepping 2, GenuineIntel", True), ("arm", False), ("", False)],
)
def test_on_other_systems_the_processors_name_decides(
    name: str, is_intels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: name)
    assert processor.is_intels(tmp_path / "missing") is is_intels


@pytest.mark.parametrize(
    ("amx", "avx512", "is_intels", "onednn", "precision"),
    [
        (True, True, True, True, "bf16-mixed"),
        (False, True, False, True, "bf16-mixed"),
        (False, True, True, True, "32-true"),  # AMX hidden by a virtual machine
        (False, True, False, False, "32-true"),  # AVX-512 hidden from oneDNN
        (False, False, False, False, "32-true"),
    ],
)
def test_trainings_run_in_the_precision_that_the_processor_is_fast_at(
    amx: bool,
    avx512: bool,
    is_intels: bool,
    onednn: bool,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512, raising=False)
    monkeypatch.setattr(processor, "is_intels", lambda: is_intels)
    monkeypatch.setattr(processor, "onednn_multiplies_bfloat16", lambda: onednn)
    assert device.fast_precision() == precision


def test_a_torch_without_the_queries_trains_in_single_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported", raising=False)
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported", raising=False)
    assert device.fast_precision() == "32-true"


def test_a_onednn_limited_to_avx2_multiplies_no_bfloat16() -> None:
    code = "from captioning.kernels import processor as p; print(p.onednn_multiplies_bfloat16())"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "False\n"
