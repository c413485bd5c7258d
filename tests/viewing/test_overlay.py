from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from captioning.data.framing import Fit, crop_box
from captioning.data.images import DecodedPhoto
from captioning.data.tokenizers import pieces
from captioning.viewing import overlay
from captioning.viewing.overlay import gif_frames, upsampled, word_panels
from tests.viewing.conftest import SIZE, caption

WIDE, TALL = (300, 200), (160, 400)
MIDDLE = (50.0, 0.0, 200.0, 200.0)  # the central square of WIDE


def one_hot(row: int, column: int) -> np.ndarray:
    weights = np.zeros((4, 5), np.float32)
    weights[row, column] = 1
    return weights


def photo(size: tuple[int, int] = WIDE, colour: str = "white") -> DecodedPhoto:
    return DecodedPhoto(Image.new("RGB", size, colour), size)


def draw(*words: str, size: tuple[int, int] = WIDE) -> Figure:
    """The figure of a caption whose model saw the central square of the photo."""
    side = float(min(size))
    crop = ((size[0] - side) / 2, (size[1] - side) / 2, side, side)
    maps = np.random.default_rng(0).random((len(words), 4, 5), np.float32)
    return overlay.draw(photo(size), words, (0.5,) * len(words), maps, crop)


def pixels(figure: Figure) -> np.ndarray:
    canvas: Any = figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
@pytest.mark.parametrize("size", [WIDE, TALL])
@pytest.mark.parametrize(("row", "column"), [(0, 2), (2, 1), (3, 3), (1, 2)])
def test_the_peak_is_inside_the_cell_of_the_largest_weight(
    fit: Fit, size: tuple[int, int], row: int, column: int
) -> None:
    left, top, width, height = place = crop_box(size, fit)
    found = upsampled(one_hot(row, column), place, size)
    y, x = np.unravel_index(found.argmax(), found.shape)
    assert left + column * width / 5 <= x < left + (column + 1) * width / 5
    assert top + row * height / 4 <= y < top + (row + 1) * height / 4


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
@pytest.mark.parametrize("size", [WIDE, TALL])
def test_equal_weights_are_equal_inside_the_crop_zero_outside(
    fit: Fit, size: tuple[int, int]
) -> None:
    place = crop_box(size, fit)
    left, top, width, height = map(int, place)
    expected = np.zeros((size[1], size[0]))
    expected[max(top, 0) : top + height, max(left, 0) : left + width] = 0.05
    found = upsampled(np.full((4, 5), 0.05), place, size)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "crop", "weights", "centre"),
    # The cell's centre as a share of the photo's width and height, worked out by hand: the square
    # starts at 50 of 300 pixels and its cells are 40 by 50, or at 120 of 400 with 32 by 40.
    [
        (WIDE, MIDDLE, one_hot(1, 3), (190 / 300, 75 / 200)),
        (TALL, (0.0, 120.0, 160.0, 160.0), one_hot(2, 1), (48 / 160, 220 / 400)),
    ],
)
def test_a_word_picture_is_brightest_at_the_largest_weight(
    size: tuple[int, int], crop: Any, weights: np.ndarray, centre: tuple[float, float]
) -> None:
    _, picture = word_panels(photo(size, "black"), weights[None], crop)
    light = np.asarray(Image.fromarray(picture).convert("L"))
    y, x = (places.mean() for places in np.nonzero(light == light.max()))
    found = (x + 0.5) / light.shape[1], (y + 0.5) / light.shape[0]
    assert found == pytest.approx(centre, abs=0.01)


def test_a_map_with_an_offset_is_moved_by_parts_of_a_cell() -> None:
    weights = np.random.default_rng(0).random((4, 5))
    moved = upsampled(weights, MIDDLE, WIDE, (0.5, 0.25))  # 25 and 10 pixels
    still = upsampled(weights, MIDDLE, WIDE)
    np.testing.assert_allclose(moved[25:, 60:250], still[:-25, 50:240], rtol=1e-5)
    np.testing.assert_allclose(moved[:25, 60:250], still[:1, 50:240].repeat(25, 0), rtol=0.05)
    assert not moved[:, :50].any()


def test_unseen_parts_are_darker_than_a_weight_of_zero() -> None:
    _, picture = word_panels(photo(), one_hot(1, 4)[None], MIDDLE)
    row = np.asarray(Image.fromarray(picture).convert("L"))[160]
    outside, unattended = row[:80], row[81:150]  # the crop starts at 50/300 of 480 pixels
    assert outside.max() < 0.5 * unattended.min()


def test_every_map_is_as_bright_as_the_others() -> None:
    weights = np.stack([one_hot(1, 1), 0.001 * one_hot(1, 1)])
    _, first, second = word_panels(photo(), weights, MIDDLE)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("size", "count"), [((1, 1), 1), ((900, 2), 25), ((2, 900), 25), (TALL, 0)]
)
def test_every_word_has_a_panel_for_any_shape_of_photo(size: tuple[int, int], count: int) -> None:
    figure = draw(*["dog"] * count, size=size)
    assert len(figure.axes) == 1 + count
    assert all(0 < axes.get_position().width <= 1 for axes in figure.axes)


@pytest.mark.parametrize(
    "word", ["$x_1$", "<unk>", "кот", "\N{DOG FACE}", "猫", "a\tb", "\x01", ""]
)
def test_no_word_is_markup_or_makes_matplotlib_warn(word: str) -> None:
    figure = draw(word)
    pixels(figure)
    if word.isprintable() and word.isascii():
        assert figure.axes[1].get_title("left") == word


def test_a_panel_tells_the_probability_of_its_word() -> None:
    shown = caption("a", "dog", named=(None, 0.71))
    figure = shown.figure(photo=photo(SIZE).image)
    told = [axes.get_title("right") for axes in figure.axes[1:]]
    assert told == [f"{probability:.2f}" for probability in shown.probabilities]


def test_a_long_word_does_not_run_into_its_probability() -> None:
    figure = draw("surfboard", "extraordinarily-long-hyphenated-compound", size=TALL)
    for axes in figure.axes[1:]:
        places = {text.get_text(): text.get_window_extent() for text in axes.findobj(Text)}
        assert places[axes.get_title("left")].x1 < places[axes.get_title("right")].x0


def test_frames_write_chinese_without_spaces() -> None:
    def last(*words: str) -> np.ndarray:
        maps = np.full((len(words), 2, 2), 0.25)
        crop = (0.0, 0.0, 90.0, 60.0)
        return np.asarray(gif_frames(photo((90, 60)), pieces(words, "chinese"), maps, crop)[-1])

    whole = last("黑狗在跑")
    np.testing.assert_array_equal(last("黑狗", "在", "跑"), whole)
    assert (last("黑狗", "x", "y") != last("黑狗xy")).any()
