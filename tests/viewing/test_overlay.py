from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.data.preprocessing import Fit, Preprocessing
from captioning.errors import InputError
from captioning.viewing.overlay import draw, save, upsampled, word_pictures

WIDE, TALL = (300, 200), (160, 400)
MIDDLE = (50.0, 0.0, 200.0, 200.0)  # of WIDE


def one_hot(row: int, column: int) -> torch.Tensor:
    weights = torch.zeros(4, 5)
    weights[row, column] = 1
    return weights


def caption(*words: str, size: tuple[int, int] = WIDE, weights: Any = None) -> Caption:
    """A caption whose model saw the central square of the photo."""
    side = float(min(size))
    crop = ((size[0] - side) / 2, (size[1] - side) / 2, side, side)
    if weights is None:
        weights = torch.rand(len(words), 4, 5, generator=torch.Generator().manual_seed(0))
    maps = {"attention": weights, "evidence": weights.flip(2)}
    return Caption(words, (0.5,) * len(words), -1.0, crop, size, maps, ("attention",))


def photo(size: tuple[int, int] = WIDE, colour: str = "white") -> Image.Image:
    return Image.new("RGB", size, colour)


def pixels(figure: Figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
@pytest.mark.parametrize("size", [WIDE, TALL])
@pytest.mark.parametrize(("row", "column"), [(0, 2), (2, 1), (3, 3), (1, 2)])
def test_the_peak_is_inside_the_cell_of_the_largest_weight(
    fit: Fit, size: tuple[int, int], row: int, column: int
) -> None:
    left, top, width, height = place = Preprocessing(32, fit).place(size)
    found = upsampled(one_hot(row, column), place, size)
    y, x = np.unravel_index(found.argmax(), found.shape)
    assert left + column * width / 5 <= x < left + (column + 1) * width / 5
    assert top + row * height / 4 <= y < top + (row + 1) * height / 4


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
@pytest.mark.parametrize("size", [WIDE, TALL])
def test_equal_weights_stay_equal_where_the_model_looked_and_are_zero_elsewhere(
    fit: Fit, size: tuple[int, int]
) -> None:
    place = Preprocessing(32, fit).place(size)
    left, top, width, height = map(int, place)
    expected = np.zeros((size[1], size[0]))
    expected[max(top, 0) : top + height, max(left, 0) : left + width] = 0.05
    found = upsampled(torch.full((4, 5), 0.05), place, size)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_checkerboard_does_not_ring_below_zero() -> None:
    checkerboard = (torch.arange(20).reshape(4, 5) % 2).float()
    assert upsampled(checkerboard, MIDDLE, WIDE).min() == 0


@pytest.mark.parametrize(
    ("size", "weights", "centre"),
    # The cell's centre as a share of the photo's width and height, worked out by hand: the square
    # starts at 50 of 300 pixels and its cells are 40 by 50, or at 120 of 400 with 32 by 40.
    [
        (WIDE, one_hot(1, 3), (190 / 300, 75 / 200)),
        (TALL, one_hot(2, 1), (48 / 160, 220 / 400)),
    ],
)
def test_a_word_picture_is_brightest_at_the_largest_weight(
    size: tuple[int, int], weights: torch.Tensor, centre: tuple[float, float]
) -> None:
    given = caption("dog", size=size, weights=weights[None])
    (picture,) = word_pictures(photo(size, "black"), given)
    light = np.asarray(picture.convert("L"))
    y, x = (places.mean() for places in np.nonzero(light == light.max()))
    found = (x + 0.5) / light.shape[1], (y + 0.5) / light.shape[0]
    assert found == pytest.approx(centre, abs=0.01)


def test_what_the_model_did_not_see_is_darker_than_a_weight_of_zero() -> None:
    (picture,) = word_pictures(photo(), caption("dog", weights=one_hot(1, 4)[None]))
    row = np.asarray(picture.convert("L"))[160]
    outside, unattended = row[:80], row[81:150]  # the crop starts at 50/300 of 480 pixels
    assert outside.max() < 0.5 * unattended.min()


def test_every_map_is_as_bright_as_the_others() -> None:
    weights = torch.stack([one_hot(1, 1), 0.001 * one_hot(1, 1)])
    first, second = word_pictures(photo(), caption("a", "dog", weights=weights))
    np.testing.assert_array_equal(first, second)


def test_another_map_of_the_caption_can_be_drawn() -> None:
    given = caption("dog", weights=one_hot(1, 0)[None])
    shown, other = (word_pictures(photo(), given, name)[0] for name in (None, "evidence"))
    assert other == shown.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@pytest.mark.parametrize(
    ("size", "count"), [((1, 1), 1), ((900, 2), 25), ((2, 900), 25), (TALL, 0)]
)
def test_every_word_has_a_panel_whatever_the_shape_of_the_photo(
    size: tuple[int, int], count: int
) -> None:
    figure = draw(photo(size), caption(*["dog"] * count, size=size))
    assert len(figure.axes) == 1 + count
    assert all(0 < axes.get_position().width <= 1 for axes in figure.axes)


@pytest.mark.parametrize("word", ["$x_1$", "\\frac{1}{2}", "<unk>", "кот", "كلب"])
def test_words_stand_above_their_panel_as_they_are(word: str) -> None:
    figure = draw(photo(), caption(word))
    assert word in [text.get_text() for text in figure.axes[1].texts]


@pytest.mark.parametrize("word", ["\N{DOG FACE}", "猫", "a\tb", "\x01", "👩\u200d🚀", ""])
def test_no_word_makes_matplotlib_warn(word: str) -> None:
    pixels(draw(photo(), caption(word)))


def test_a_long_word_does_not_run_into_its_probability() -> None:
    words = ("surfboard", "extraordinarily-long-hyphenated-compound")
    figure = draw(photo(TALL), caption(*words, size=TALL))
    for axes in figure.axes[1:]:
        probability, word = (text.get_window_extent() for text in axes.texts)
        assert word.x1 < probability.x0


def test_threads_draw_what_one_draws() -> None:
    captions = [caption("a", "dog", name) for name in ("$one$", "two", "три")]
    expected = [pixels(draw(photo(), each)) for each in captions]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda each: pixels(draw(photo(), each)), captions))
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))


def test_the_photo_of_another_caption_is_refused() -> None:
    with pytest.raises(InputError, match="the photo has 160 x 400 pixels, but the captioned one 3"):
        draw(photo(TALL), caption("dog", size=WIDE))


def test_a_saved_overlay_is_a_complete_png_of_what_is_drawn(tmp_path: Path) -> None:
    photo().save(tmp_path / "photo.png")
    save(tmp_path / "photo.png", caption("a", "dog"), tmp_path / "new" / "overlay.png")
    with Image.open(tmp_path / "new" / "overlay.png") as saved:
        assert saved.format == "PNG"
        np.testing.assert_array_equal(np.asarray(saved), pixels(draw(photo(), caption("a", "dog"))))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["overlay.png"]
