from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from captioning.data.data_module import CaptionData
from captioning.data.readers import CaptionTable, Coco
from captioning.errors import InputError
from captioning.shapes import write_shapes
from tests.data.conftest import draw, write


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough scenes that some have longer captions than others."""
    folder = tmp_path_factory.mktemp("scenes")
    write_shapes(folder, train=24, val=2, test=2, pixels=32, progress=False)
    return folder


def longest_captions(scenes: Path, **options: Any) -> list[list[int]]:
    """The length of each image's longest caption, batch by batch, in a training's first epoch."""
    data = CaptionData(Coco(scenes), size=16, batch_size=4, min_count=1, workers=0, **options)
    data.trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    return [
        [max(len(caption.split()) for caption in record.captions) for record in batch.records]
        for batch in data.train_dataloader()
    ]


def test_captions_of_similar_length_share_a_batch(scenes: Path) -> None:
    alike, any_length = longest_captions(scenes), longest_captions(scenes, similar_lengths=False)
    together = sorted(chain(*alike))
    assert sorted(chain(*any_length)) == together
    assert list(chain(*sorted(alike))) == together
    assert list(chain(*sorted(any_length))) != together


def test_photos_with_few_captions_are_left_out(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png", "c.png")
    rows = ["a.png,one", "a.png,two", "a.png,three", "b.png,one", "c.png,one", "c.png,two"]
    rows = [f"{row},train" for row in rows] + ["d.png,one,val"]
    write(tmp_path / "captions.csv", "\n".join(["file_name,caption,split", *rows]))
    data = CaptionData(CaptionTable(tmp_path), min_captions=2)
    assert [record.image.name for record in data.train_records] == ["a.png", "c.png"]
    assert [record.image.name for record in data.val_records] == ["d.png"]
    with pytest.raises(InputError, match=r"no photo .* has 4 captions; lower data\.min_captions"):
        _ = CaptionData(CaptionTable(tmp_path), min_captions=4).train_records


@pytest.mark.parametrize(
    "options", [{"crop": 3}, {"mirror": True}, {"features": "f", "augment": True}], ids=str
)
def test_features_exclude_some_options(scenes: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"data\.augment"):
        CaptionData(Coco(scenes), **options)
