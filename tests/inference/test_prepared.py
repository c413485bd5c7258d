from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.evaluation.split import split_captions
from captioning.evaluation.split_captions import split_captions_together
from captioning.inference.batches import captioned
from captioning.inference.work import Processes
from captioning.models import linear
from captioning.search import BeamSearch
from captioning.search.search import MANY

SEARCH = BeamSearch(MANY, max_length=6)

WAYS: dict[str, Callable[[Captioner, list[Record]], object]] = {
    "evaluate": lambda captioner, records: split_captions(captioner, records, SEARCH, 1),
    "share": lambda captioner, records: split_captions_together(
        Processes(), captioner, records, SEARCH, 1
    ),
    "caption": lambda captioner, records: list(
        captioned(captioner, [record.image for record in records], SEARCH, 1)
    ),
}


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the weights are that are packed from now on, as on a processor of Intel's."""
    if linear._PACKED is None or not torch.backends.mkl.is_available():
        pytest.skip("this PyTorch has no MKL")
    pack, packed = linear._PACKED, []

    def counted(weight: Tensor, rows: int) -> Tensor:
        packed.append(weight.data_ptr())
        return pack(weight, rows)

    monkeypatch.setattr(linear, "_PACKED", counted)
    monkeypatch.setattr(linear, "is_intels", lambda: True)
    return packed


@pytest.mark.parametrize("way", WAYS)
def test_weights_are_packed_once_for_all_batches(
    way: str, captioner: Captioner, shapes_records: list[Record], packed: list[int]
) -> None:
    assert len(shapes_records) > 1
    WAYS[way](captioner, shapes_records)
    assert len(packed) == len(set(packed)) == 7
    layers = [layer for layer in captioner.modules() if isinstance(layer, linear.Linear)]
    assert all(layer._packed is None for layer in layers)


def test_a_single_photo_is_captioned_without(
    captioner: Captioner, shapes_records: list[Record], packed: list[int]
) -> None:
    assert list(captioned(captioner, [shapes_records[0].image], BeamSearch(3)))
    assert not packed
