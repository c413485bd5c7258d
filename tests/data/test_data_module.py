from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from captioning.data.data_module import CaptionData
from captioning.data.readers import Coco
from captioning.shapes import write_shapes


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


def test_captions_of_similar_length_share_a_batch_unless_switched_off(scenes: Path) -> None:
    alike, any_length = longest_captions(scenes), longest_captions(scenes, similar_lengths=False)
    together = sorted(chain(*alike))
    assert sorted(chain(*any_length)) == together
    assert list(chain(*sorted(alike))) == together
    assert list(chain(*sorted(any_length))) != together
