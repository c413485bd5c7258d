import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError
from captioning.inference.batches import AHEAD, candidates, read_ahead
from captioning.search import Sampling


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((40, 30), 50).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_only_a_few_of_endless_batches_are_read_ahead(captioner: Captioner, photo: Path) -> None:
    begun: list[int] = []

    def endless() -> Iterator[tuple[int, list[Path]]]:
        for number in itertools.count():
            begun.append(number)
            yield number, [photo] * 2

    batches = read_ahead(captioner, endless())
    for expected in range(5):
        number, paths, views = next(batches)
        assert (number, paths) == (expected, [photo] * 2)
        assert all(isinstance(view, View) for view in views)
        assert len(begun) <= expected + 1 + AHEAD
    batches.close()  # type: ignore[attr-defined]


def test_every_photo_has_its_caption_or_its_reason_in_order(
    captioner: Captioner, photo: Path, tmp_path: Path
) -> None:
    paths = [photo, tmp_path / "gone.jpg", photo, photo, tmp_path / "gone.jpg"]
    [expected] = captioner([photo])
    found = list(candidates(captioner, paths, batch_size=2))
    assert [path for path, _ in found] == paths
    texts = [None if isinstance(each, InputError) else each[0].text for _, each in found]
    assert texts == [expected.text, None, expected.text, expected.text, None]


@pytest.mark.usefixtures("two_threads")
def test_samples_follow_the_seed_of_pytorch_with_several_threads(
    captioner: Captioner, photo: Path
) -> None:
    search = Sampling(temperature=9.0, max_length=6)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        samples = candidates(captioner, [photo] * 40, search, batch_size=4)
        found.append([each[0].words for _, each in samples if not isinstance(each, InputError)])
    assert found[0] == found[1]
    assert len(set(found[0])) > 1
