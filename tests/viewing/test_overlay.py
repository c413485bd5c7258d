from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.errors import InputError
from captioning.viewing import text_drawing
from captioning.viewing.overlay import attention_map, draw, save, word_pictures

WIDE, TALL = (300, 200), (160, 400)
CENTRES = {WIDE: (50.0, 0.0, 200.0, 200.0), TALL: (0.0, 120.0, 160.0, 160.0)}


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
    return Caption(words, (0.5,) * len(words), weights, -1.0, crop, size)


def photo(size: tuple[int, int] = WIDE, colour: str = "white") -> Image.Image:
    return Image.new("RGB", size, colour)


def pixels(figure: Figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [WIDE, TALL])
@pytest.mark.parametrize("row", [0, 2, 3])
@pytest.mark.parametrize("column", [0, 1, 4])
def test_the_peak_lies_in_the_cell_that_was_attended(
    size: tuple[int, int], row: int, column: int
) -> None:
    left, top, width, height = CENTRES[size]
    found = attention_map(one_hot(row, column), CENTRES[size], size)
    y, x = np.unravel_index(found.argmax(), found.shape)
    assert left + column * width / 5 <= x < left + (column + 1) * width / 5
    assert top + row * height / 4 <= y < top + (row + 1) * height / 4


def test_an_inner_cell_peaks_at_its_centre() -> None:
    found = attention_map(one_hot(2, 3), (50.5, 0.0, 205.0, 204.0), (400, 300))
    y, x = np.unravel_index(found.argmax(), found.shape)
    assert (x + 0.5, y + 0.5) == pytest.approx((50.5 + 3.5 * 205 / 5, 2.5 * 204 / 4), abs=0.51)


@pytest.mark.parametrize("size", [WIDE, TALL])
def test_equal_weights_stay_equal_inside_the_crop_and_are_zero_outside(
    size: tuple[int, int],
) -> None:
    left, top, width, height = map(int, CENTRES[size])
    expected = np.zeros((size[1], size[0]))
    expected[top : top + height, left : left + width] = 0.05
    found = attention_map(torch.full((4, 5), 0.05), CENTRES[size], size)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_checkerboard_does_not_ring_below_zero() -> None:
    checkerboard = (torch.arange(20).reshape(4, 5) % 2).float()
    assert attention_map(checkerboard, CENTRES[WIDE], WIDE).min() == 0


def test_a_mirrored_grid_gives_the_mirrored_map() -> None:
    weights = torch.rand(4, 5, generator=torch.Generator().manual_seed(1))
    found = attention_map(weights, CENTRES[WIDE], WIDE)
    mirrored = attention_map(weights.flip(0, 1), CENTRES[WIDE], WIDE)
    np.testing.assert_allclose(mirrored[::-1, ::-1], found, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "weights", "centre"),
    # The cell's centre as a part of the photo's width and height, worked out by hand: the square
    # begins at 50 of 300 pixels and its cells are 40 by 50, or at 120 of 400 with 32 by 40.
    [
        (WIDE, one_hot(1, 3), (190 / 300, 75 / 200)),
        (TALL, one_hot(2, 1), (48 / 160, 220 / 400)),
    ],
)
def test_a_word_picture_is_brightest_where_the_model_looked(
    size: tuple[int, int], weights: torch.Tensor, centre: tuple[float, float]
) -> None:
    (picture,) = word_pictures(
        photo(size, "black"), caption("dog", size=size, weights=weights[None])
    )
    light = np.asarray(picture.convert("L"))
    y, x = (places.mean() for places in np.nonzero(light == light.max()))
    assert ((x + 0.5) / light.shape[1], (y + 0.5) / light.shape[0]) == pytest.approx(
        centre, abs=0.01
    )


def test_what_the_model_did_not_see_is_darker_than_what_it_did_not_attend_to() -> None:
    weights = one_hot(1, 4)[None]
    (picture,) = word_pictures(photo(), caption("dog", weights=weights))
    row = np.asarray(picture.convert("L"))[160]
    outside, unattended = row[:80], row[81:150]  # the crop begins at 50/300 of 480 pixels
    assert outside.max() < 0.5 * unattended.min()


def test_every_map_is_as_bright_as_the_others() -> None:
    weights = torch.stack([one_hot(1, 1), 0.001 * one_hot(1, 1)])
    first, second = word_pictures(photo(), caption("a", "dog", weights=weights))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("size", [(1, 1), (900, 2), (2, 900), (64, 64), TALL])
@pytest.mark.parametrize("count", [0, 1, 25])
def test_every_word_has_a_panel_whatever_the_shape_of_the_photo(
    size: tuple[int, int], count: int
) -> None:
    figure = draw(photo(size), caption(*["dog"] * count, size=size))
    assert len(figure.axes) == 1 + count
    assert all(0 < axes.get_position().width <= 1 for axes in figure.axes)


@pytest.mark.parametrize("word", ["$x_1$", "a_b", "\\frac{1}{2}", "$", "<unk>", "кот", "كلب"])
def test_words_stand_above_their_panel_as_they_are(word: str) -> None:
    figure = draw(photo(), caption(word))
    assert word in [text.get_text() for text in figure.texts]


def test_dollars_are_drawn_and_not_taken_for_mathematics() -> None:
    figure = draw(photo(), caption("$x$", "x"))
    dollars, plain = (
        text.get_window_extent().width for text in figure.texts if "x" in text.get_text()
    )
    assert dollars > 2 * plain


@pytest.mark.parametrize("word", ["\N{DOG FACE}", "猫", "नि", "a\tb", "\x01", "👩\u200d🚀", ""])
def test_no_word_makes_matplotlib_warn(word: str) -> None:
    pixels(draw(photo(), caption(word)))


def test_what_no_font_has_becomes_a_white_square(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts = [font for font in text_drawing.fontManager.ttflist if font.name == text_drawing.FONT]
    monkeypatch.setattr(text_drawing.fontManager, "ttflist", fonts)
    text_drawing._fonts.cache_clear()
    words, families = text_drawing.drawable(["a🐶b", "\N{WHITE SMILING FACE}\ufe0f"])
    text_drawing._fonts.cache_clear()
    assert (words, families) == (["a□b", "\N{WHITE SMILING FACE}"], (text_drawing.FONT,))


def test_a_long_word_does_not_run_into_its_probability() -> None:
    words = ("surfboard", "extraordinarily-long-hyphenated-compound")
    figure = draw(photo(TALL), caption(*words, size=TALL))
    texts = [text.get_window_extent() for text in figure.texts]
    for probability, word in zip(texts[::2], texts[1::2], strict=True):
        assert word.x1 < probability.x0


def test_an_array_is_drawn_like_the_image_that_it_holds() -> None:
    image = Image.linear_gradient("L").resize(WIDE).convert("RGB")
    from_image, from_array = draw(image, caption("dog")), draw(np.array(image), caption("dog"))
    np.testing.assert_array_equal(pixels(from_array), pixels(from_image))


def test_threads_draw_what_one_draws() -> None:
    captions = [caption("a", "dog", name) for name in ("$one$", "two", "три")]
    expected = [pixels(draw(photo(), each)) for each in captions]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda each: pixels(draw(photo(), each)), captions))
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))


def test_the_photo_of_another_caption_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(160, 400\) pixels but the caption is of one of"):
        draw(photo(TALL), caption("dog", size=WIDE))


def test_a_saved_overlay_is_a_whole_png_of_what_is_drawn(tmp_path: Path) -> None:
    save(photo(), caption("a", "dog"), tmp_path / "new" / "overlay.png")
    with Image.open(tmp_path / "new" / "overlay.png") as saved:
        assert saved.format == "PNG"
        np.testing.assert_array_equal(np.asarray(saved), pixels(draw(photo(), caption("a", "dog"))))
    assert [path.name for path in tmp_path.rglob("*.*")] == ["overlay.png"]


def test_a_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Figure, path: Path, **options: Any) -> None:
        path.write_bytes(b"\x89PNG")
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(InputError, match="no space"):
        save(photo(), caption("dog"), tmp_path / "overlay.png")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        save(photo(), caption("dog"), tmp_path / "file" / "overlay.png")
