from pathlib import Path
from typing import Any

import pytest

from captioning.data.data_module import CaptionData
from captioning.data.readers import CaptionTable, Coco
from captioning.errors import InputError
from tests.data.conftest import draw, write


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
def test_features_exclude_some_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"data\.augment"):
        CaptionData(Coco(tmp_path), **options)
