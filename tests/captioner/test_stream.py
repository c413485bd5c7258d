"""The stream of captions: one result per photo, in order, and few photos read ahead."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.captioner import Caption, Captioner
from captioning.captioner.photo_stream import BATCHES_AHEAD
from captioning.data.framing import scaled_down
from captioning.data.images import DecodedPhoto, read_reduced_photo
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.search import BeamSearch, Greedy, Sampling
from captioning.threads import WAITING
from captioning.viewing.overlay import DRAWN_SIDE


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((40, 30), 50).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_every_photo_has_its_caption_or_its_error_in_order(
    captioner: Captioner, photo: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.jpg"
    expected = captioner(photo).text
    given = [photo, gone, photo, photo, b"no photo", gone]  # the last batch is all bad
    found: list[Any] = list(captioner.stream(given, batch_size=2))
    assert [found[place].text for place in (0, 2, 3)] == [expected] * 3
    missing = (str(gone), "no such file or directory")
    assert [(str(found[place].path), found[place].reason) for place in (1, 5)] == [missing] * 2
    assert found[4].path == "photo 5"
    assert "not an image" in found[4].reason
    with pytest.raises(PhotoError, match=r"gone\.jpg: no such file"):
        captioner([photo, gone])


def test_few_of_endless_photos_are_read_ahead(
    captioner: Captioner, photo: Path, two_threads: None
) -> None:
    begun: list[int] = []

    def endless() -> Iterator[Path]:
        for number in itertools.count():
            begun.append(number)
            yield photo

    captions = captioner.stream(endless(), batch_size=2)
    for count in range(1, 8):
        assert isinstance(next(captions), Caption)
        assert len(begun) <= count + 2 * (2 + WAITING + 1 + BATCHES_AHEAD) + 2
    captions.close()  # type: ignore[attr-defined]


def test_results_may_be_left_at_any_time(captioner: Captioner, photo: Path) -> None:
    for count in range(3):
        list(itertools.islice(captioner.stream([photo] * 9, batch_size=2), count))


def test_others_are_the_further_captions_of_the_search(captioner: Captioner, photo: Path) -> None:
    search = BeamSearch(5)
    [best] = captioner.stream(photo, search, most=None)
    assert isinstance(best, Caption)
    found = [best, *best.others]
    assert len({caption.words for caption in found}) == 5
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    few = captioner(photo, search, most=2)
    assert [few.words, *(other.words for other in few.others)] == [each.words for each in found[:2]]
    assert captioner(photo, search).others == ()


def test_beams_that_cannot_be_filled_are_left_out(captioner: Captioner, photo: Path) -> None:
    best = captioner(photo, BeamSearch(50, max_length=1), most=None)
    texts = sorted(each.text for each in (best, *best.others))
    assert texts == sorted(captioner.vocabulary.words)


@pytest.mark.parametrize("threads", [1, 2])
def test_drawn_captions_belong_to_the_photo_not_to_its_batch(
    captioner: Captioner, tmp_path: Path, two_threads: None, threads: int
) -> None:
    torch.set_num_threads(threads)
    photos = [tmp_path / f"{number}.png" for number in range(6)]
    for number, path in enumerate(photos):
        Image.effect_noise((40, 30), 20 + 9 * number).save(path)
    search = Sampling(temperature=100.0, max_length=6, seed=3)
    alone = [captioner(path, search).words for path in photos]
    for size in (2, 5):
        found = captioner.stream(photos[::-1], search, batch_size=size)
        assert [each.words for each in found if isinstance(each, Caption)] == alone[::-1]
    assert len(set(alone)) > 1


@pytest.mark.usefixtures("two_threads")
def test_draws_without_a_seed_follow_that_of_pytorch(captioner: Captioner, photo: Path) -> None:
    search = Sampling(temperature=100.0, max_length=6)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        captions = captioner.stream([photo] * 8, search, batch_size=2)
        found.append([caption.words for caption in raise_errors(captions)])
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


@pytest.mark.usefixtures("two_threads")
def test_an_error_of_the_model_is_raised(captioner: Captioner, photo: Path) -> None:
    for parameter in captioner.model.decoder.parameters():
        parameter.data.fill_(3e38)
    with pytest.raises(InputError, match="the model's numbers overflow"):
        list(captioner.stream([photo] * 9, batch_size=2))


def test_photos_that_are_kept_are_drawn_as_their_files_are(
    captioner: Captioner, tmp_path: Path
) -> None:
    photo = tmp_path / "photo.png"
    shades = np.arange(3 * 731 * 531, dtype=np.uint32) * 7919 % 251
    Image.fromarray(shades.reshape(531, 731, 3).astype(np.uint8)).save(photo)
    search = Greedy(min_length=2, max_length=2)
    [from_file] = captioner.stream([photo], search)
    [kept] = captioner.stream([photo], search, photo_side=DRAWN_SIDE)
    assert from_file == kept
    from_file.save(tmp_path / "file.gif")
    photo.unlink()
    kept.save(tmp_path / "kept.gif")
    assert (tmp_path / "kept.gif").read_bytes() == (tmp_path / "file.gif").read_bytes()


def test_photos_that_are_kept_are_as_sharp_as_their_files(
    captioner: Captioner, tmp_path: Path
) -> None:
    assert captioner.preprocessing.size < 100  # the model itself needs few pixels
    stripes = np.zeros((1500, 2000), dtype=np.uint8)
    stripes[:, np.arange(2000) % 20 < 10] = 255
    Image.fromarray(stripes).convert("RGB").save(tmp_path / "photo.jpg", quality=95)
    [kept] = captioner.stream([tmp_path / "photo.jpg"], photo_side=DRAWN_SIDE)
    assert isinstance(kept.photo, DecodedPhoto)
    photo = read_reduced_photo(tmp_path / "photo.jpg", None)
    whole = scaled_down(photo, DRAWN_SIDE).image
    difference = np.asarray(kept.photo.image, np.float32) - np.asarray(whole, np.float32)
    assert abs(difference).mean() < 2
