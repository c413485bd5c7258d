"""Random squares of cached features."""

from pathlib import Path

import pytest

from captioning.data.data_module import CaptionData
from captioning.data.dataset import CaptionDataset
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import Coco
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from tests.data.conftest import Caches, encoder

SEEDS = range(40)


@pytest.mark.parametrize(("crop", "views"), [(3, 8), (None, 2)], ids=["windows", "whole"])
def test_a_training_sees_windows_and_where_they_are(
    caches: Caches, shapes_records: list[Record], crop: int | None, views: int
) -> None:
    side = crop or 4
    image = shapes_records[0].image
    data = CaptionDataset(
        [Record(image, 1, ("a dog",))],
        Vocabulary(["dog"]),
        Preprocessing(32),
        features=caches[0],
        mirrored=caches[1],
        tells_seen=True,
        crop=crop,
    )
    left, top, width, height = Preprocessing(32)(image).crop
    places = set()
    for seed in SEEDS:
        features, _, _, seen = data[0, seed]
        assert seen is not None
        assert seen.crop[2:] == (width * side / 4, height * side / 4)
        column, row = ((seen.crop[0] - left) / width * 4, (seen.crop[1] - top) / height * 4)
        column = 4 - side - column if seen.is_mirrored else column
        row, column = round(row), round(column)
        whole = caches[seen.is_mirrored][image].unflatten(0, (4, 4))
        assert features.equal(whole[row : row + side, column : column + side].flatten(0, 1))
        places.add((row, column, seen.is_mirrored))
    assert len(places) == views
    assert data[0, 1].image.equal(data[0, 1].image)


def test_a_window_is_no_larger_than_the_map(shapes_data: Path, tmp_path: Path) -> None:
    data = CaptionData(
        Coco(shapes_data), size=32, min_count=1, workers=0, features=str(tmp_path / "f"), crop=5
    )
    with pytest.raises(InputError, match=r"data\.crop: .* 4 rows of 4 cells; give at most 4"):
        data.keep_features(encoder())
