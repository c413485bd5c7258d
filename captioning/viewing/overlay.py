"""Maps laid over the photo: a panel, or a frame of an animation, per word.

As in figures 2 and 3 of the paper: Xu et al., "Show, Attend and Tell: Neural Image Caption
Generation with Visual Attention", ICML 2015, https://arxiv.org/abs/1502.03044.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from PIL import Image

from captioning.data.framing import Box, scaled_size
from captioning.data.images import DecodedPhoto

CellOffset = tuple[float, float]
"""Rows and columns by which the weights of a map belong further down, and further right."""

DRAWN_SIDE = 480  # pixels of a drawn photo
PHOTO_LIGHT, UNSEEN_LIGHT, MAP_LIGHT = 0.5, 0.16, 0.65

PANEL_AREA = 4.0  # square inches; the lengths below are inches too
NARROWEST, WIDEST = 0.65, 3.0  # width over height of a panel
FIGURE_ASPECT_RATIO = 1.25  # width over height of the figure
MARGIN, GAP, TITLE_HEIGHT, TITLE_PAD = 0.15, 0.12, 0.28, 0.07
WORD_POINTS, PROBABILITY_POINTS = 12.0, 7.5
DOTS_PER_INCH = 150

WORD_TIME, LAST_TIME = 700, 2000  # milliseconds for which a word, and the last one, is shown
CAPTION_HEIGHT = 60  # pixels below the photo of an animation
CAPTION_WIDTH = 0.95  # the widest line as a share of the photo's width

FONT = "DejaVu Sans"  # comes with matplotlib, so that pictures look the same everywhere
UNDRAWABLE = "\N{WHITE SQUARE}"


def draw(
    photo: DecodedPhoto,
    words: Sequence[str],
    probabilities: Sequence[float],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    cell_offset: CellOffset = (0.0, 0.0),
) -> Figure:
    """Draw the photo, then one panel per word with the word's map.

    Each panel shows the photo in grey with the map as light on it, scaled to the map's own maximum:
    panels do not show how peaked a map is. Parts that the model did not see are dark. Above a panel
    are the word and its probability.

    Args:
        photo: the photo, at its full size or smaller.
        words: of the caption; without any, only the photo is drawn.
        probabilities: of the words.
        maps: of the words.
        crop: the part of the photo that the maps cover, in pixels of its full size.
        cell_offset: rows and columns by which the maps are moved down and right.
    """
    panels = word_panels(photo, maps, crop, cell_offset)
    drawable_words, families = drawable(words)

    # The panel of a tall photo is wide enough for its word; that of a wide one as low as the photo.
    full_width, full_height = photo.size
    aspect_ratio = full_width / full_height
    panel_width = math.sqrt(PANEL_AREA * min(max(aspect_ratio, NARROWEST), WIDEST))
    panel_height = panel_width / max(aspect_ratio, NARROWEST)
    column_width, row_height = panel_width + GAP, TITLE_HEIGHT + panel_height + GAP
    count = len(panels)
    ideal_columns = math.sqrt(FIGURE_ASPECT_RATIO * count * row_height / column_width)
    columns = max(1, min(count, round(ideal_columns)))
    rows = math.ceil(count / columns)
    figure_width = 2 * MARGIN + columns * column_width - GAP
    figure_height = 2 * MARGIN + rows * row_height - GAP

    figure = Figure(figsize=(figure_width, figure_height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)  # which measures the texts
    grid = figure.add_gridspec(
        rows,
        columns,
        left=MARGIN / figure_width,
        right=1 - MARGIN / figure_width,
        bottom=MARGIN / figure_height,
        top=1 - (MARGIN + TITLE_HEIGHT) / figure_height,
        wspace=GAP / panel_width,
        hspace=(TITLE_HEIGHT + GAP) / panel_height,
    )
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(grid[index])
        axes.imshow(panel)
        pixel_rows, pixel_columns, _ = panel.shape
        axes.set_xlim(-0.5, max(pixel_columns, pixel_rows * panel_width / panel_height) - 0.5)
        axes.set_axis_off()
        if index > 0:
            word, probability = drawable_words[index - 1], probabilities[index - 1]
            set_titles(axes, word, probability, families, panel_width)
    return figure


def set_titles(
    axes: Axes, word: str, probability: float, families: Sequence[str], panel_width: float
) -> None:
    """Write a word and its probability above a panel; a long word is written smaller.

    Args:
        axes: of the panel.
        word: the word, in a `drawable` form.
        probability: of the word.
        families: the font families that draw the word.
        panel_width: in inches.
    """
    style: dict[str, Any] = {"pad": 72 * TITLE_PAD, "family": families, "parse_math": False}
    probability_title = axes.set_title(
        f"{probability:.2f}", loc="right", size=PROBABILITY_POINTS, color="0.45", **style
    )
    word_title = axes.set_title(word, loc="left", size=WORD_POINTS, **style)
    probability_width = probability_title.get_window_extent().width
    free_width = (panel_width - TITLE_PAD) * DOTS_PER_INCH - probability_width
    word_width = word_title.get_window_extent().width
    if word_width > free_width:  # hinting adds a little
        word_title.set_fontsize(0.9 * WORD_POINTS * free_width / word_width)


def save_gif(
    path: Path,
    photo: DecodedPhoto,
    pieces: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    cell_offset: CellOffset = (0.0, 0.0),
) -> None:
    """Write an animation of the frames of `gif_frames`, the last one shown for longer."""
    first, *others = gif_frames(photo, pieces, maps, crop, cell_offset)
    times = [*[WORD_TIME] * len(others), LAST_TIME]
    first.save(path, "GIF", save_all=True, append_images=others, loop=0, duration=times)


def gif_frames(
    photo: DecodedPhoto,
    pieces: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    cell_offset: CellOffset = (0.0, 0.0),
) -> list[Image.Image]:
    """Draw for each word the photo with the word's map, above the caption up to this word.

    A caption without words has one frame, the photo. Arguments are those of `draw`; `pieces` are
    the words, each with the space before it.
    """
    photo_panel, *panels = word_panels(photo, maps, crop, cell_offset)
    words, families = drawable(pieces)
    images = []
    for count, panel in enumerate(panels or [photo_panel], 1):
        height, width = len(panel) + CAPTION_HEIGHT, panel.shape[1]
        figure = Figure((width / DOTS_PER_INCH, height / DOTS_PER_INCH), DOTS_PER_INCH)
        canvas = FigureCanvasAgg(figure)
        figure.figimage(panel, 0, CAPTION_HEIGHT)
        line = figure.text(
            0,
            CAPTION_HEIGHT / 2 / height,
            "".join(words),
            fontsize=WORD_POINTS,
            fontfamily=families,
            verticalalignment="center",
            parse_math=False,
        )
        length = line.get_window_extent().width
        scale = min(1.0, CAPTION_WIDTH * width / max(length, 1))
        # The first words stand where they stand in the whole line, which is in the middle.
        line.set(fontsize=WORD_POINTS * scale, x=(1 - scale * length / width) / 2)
        line.set_text("".join(words[:count]))
        canvas.draw()
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return images


def word_panels(
    photo: DecodedPhoto,
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    cell_offset: CellOffset = (0.0, 0.0),
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Return the photo, then for each word the photo in grey with the word's map as light on it.

    They have `DRAWN_SIDE` pixels on the longer side. The colours are those of inferno, which starts
    at black and whose lightness grows evenly: a weight of zero adds nothing, and equal differences
    look equal on dark and bright photos.
    """
    image, size = photo
    width, height = scaled_size(size, DRAWN_SIDE)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)

    x_scale, y_scale = width / size[0], height / size[1]
    left, top, crop_width, crop_height = crop
    small_crop = (left * x_scale, top * y_scale, crop_width * x_scale, crop_height * y_scale)
    photo_panel = np.asarray(image)
    grey = photo_panel @ np.array([0.299, 0.587, 0.114], dtype=np.float32) / 255
    grey *= np.where(is_in_crop(small_crop, image.size), PHOTO_LIGHT, UNSEEN_LIGHT)
    panels = [photo_panel]
    for weights in maps:
        light = upsampled(weights, small_crop, image.size, cell_offset)
        light /= max(light.max(), np.finfo(np.float32).tiny)
        panel = grey[..., None] + colormaps["inferno"](light)[..., :3] * MAP_LIGHT
        panels.append((255 * panel.clip(0, 1)).round().astype(np.uint8))
    return panels


def is_in_crop(crop: Box, size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    """Return whether the centre of each pixel of a photo is in a crop.

    Args:
        crop: the crop, in pixels of the photo.
        size: width and height of the photo.
    """
    left, top, crop_width, crop_height = crop
    row_positions = cell_positions(size[1], top, crop_height, 1)
    column_positions = cell_positions(size[0], left, crop_width, 1)
    return (abs(row_positions) <= 0.5)[:, None] & (abs(column_positions) <= 0.5)


def upsampled(
    weights: Float[np.ndarray, "rows columns"],
    crop: Box,
    size: tuple[int, int],
    cell_offset: CellOffset = (0.0, 0.0),
) -> Float[np.ndarray, "height width"]:
    """Upsample a map to the pixels of the photo; zero where their centre is outside the crop.

    The grid covers the crop, and each weight belongs to the centre of its cell (`align_corners` is
    false, in PyTorch's terms), moved by `cell_offset`; beyond the outermost centres the edge cells
    are repeated. A cubic B-spline of the weights never rings below zero as interpolating cubics do.
    Its slight blur stands in for the Gaussian filter of the paper (section 5.4).

    Args:
        weights: the weights of the regions, rows from top to bottom.
        crop: the part of the photo that the grid covers.
        size: width and height of the photo.
        cell_offset: rows and columns by which the map is moved down and right.
    """
    left, top, crop_width, crop_height = crop
    rows, columns = weights.shape
    row_spline = cubic_spline(size[1], top, crop_height, rows, cell_offset[0])
    column_spline = cubic_spline(size[0], left, crop_width, columns, cell_offset[1])
    padded = np.pad(weights.astype(np.float32), 2, mode="edge")
    return row_spline @ padded @ column_spline.T


def cell_positions(
    pixels: int, start: float, extent: float, cells: int
) -> Float[np.ndarray, " pixels"]:
    """Return the position of each pixel's centre among the cells along one axis.

    The centres of the cells are at 0, 1, and so on. Arguments are those of `cubic_spline`.
    """
    return (np.arange(pixels) + 0.5 - start) / extent * cells - 0.5


def cubic_spline(
    pixels: int, start: float, extent: float, cells: int, offset: float
) -> Float[np.ndarray, "pixels cells_and_4"]:
    """Return the cubic B-spline weights of the cells at each pixel along one axis.

    Args:
        pixels: the number of pixels.
        start: where the cells start, in pixels.
        extent: the length of all cells, in pixels.
        cells: the number of cells; the result has two more at each edge.
        offset: how many cells the values are moved by.
    """
    position = cell_positions(pixels, start, extent, cells)
    is_covered = (position >= -0.5) & (position <= cells - 0.5)
    position = (position - offset).clip(-0.5, cells - 0.5)
    distance = abs(position[:, None] - np.arange(-2, cells + 2))
    inner = (4 - 6 * distance**2 + 3 * distance**3) / 6
    outer = (2 - distance).clip(0) ** 3 / 6
    spline = np.where(distance < 1, inner, outer) * is_covered[:, None]
    return spline.astype(np.float32)


def drawable(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return words of any script in a drawable form, and the font families that draw them.

    Invisible characters (joiners, variation selectors, controls) are left out; characters without
    an installed font become white squares, so that Matplotlib does not warn of missing glyphs.
    """
    texts = [_visible(word) for word in words]
    families, missing = _fonts(frozenset("".join(texts)))
    table = {ord(character): UNDRAWABLE for character in missing}
    return [text.translate(table) for text in texts], families


def _visible(word: str) -> str:
    """Leave out joiners, controls and variation selectors."""
    return "".join(
        character
        for character in word
        if character.isprintable() and not "\ufe00" <= character <= "\ufe0f"
    )


@lru_cache(maxsize=256)
def _fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return FONT and the other fonts that characters need, and the characters without a font."""
    regular_families = {
        entry.name
        for entry in fontManager.ttflist
        if entry.weight == 400 and entry.style == "normal" and "Last Resort" not in entry.name
    }
    families, missing = [], characters
    for family in [FONT, *sorted(regular_families - {FONT})]:
        font = get_font(findfont(FontProperties(family=family)))
        covered = {character for character in missing if font.get_char_index(ord(character))}
        if covered or family == FONT:
            families.append(family)
        missing -= covered
        if not missing:
            break
    return tuple(families), missing
