"""Parts of a model that cannot be built or used: the error names why."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from captioning.errors import InputError
from captioning.models import Adapter, CNNEncoder
from captioning.models.attention import MultiHead

REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: CNNEncoder("small", "missing.pth"), "missing.pth: no such file"),
    (lambda: CNNEncoder("small", "text.pth"), "text.pth: not a file of weights"),
    (lambda: CNNEncoder("small", "list.pth"), "list.pth: not the weights of a small"),
    (lambda: CNNEncoder("resnet18", "photos"), "photos: not the weights of a resnet18"),
    (lambda: CNNEncoder("resnet12", "DEFAULT"), "'resnet12'; choose from small, "),
    (lambda: CNNEncoder("timm/efficientvit", None), "it has efficientvit_b0"),
    (lambda: CNNEncoder("timm/mixer_s32_224", None).grid(64, 64), "set data.size"),
    (lambda: CNNEncoder("timm/pit_ti_224", None).grid(224, 224), "gives no feature map"),
    (lambda: Adapter(5, region_layers=1, region_heads=1)(torch.ones(1, 6, 5)), "6 regions"),
    (lambda: MultiHead(6, 3, width=8), "8 cannot be divided among 3 heads"),
]


@pytest.mark.parametrize(("use", "named"), REFUSALS, ids=[named for _, named in REFUSALS])
def test_what_does_not_fit_is_named(
    use: Callable[[], object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pth").write_text("no weights at all")
    torch.save([1, 2], "list.pth")
    with pytest.raises(InputError) as error:
        use()
    assert named in str(error.value)
