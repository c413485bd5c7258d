"""A map laid over the photo, one panel or one frame of an animation per word.

As in figures 2 and 3 of the paper: Xu et al., "Show, Attend and Tell: Neural Image Caption
Generation with Visual Attention", ICML 2015, https://arxiv.org/abs/1502.03044.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from PIL import Image

from captioning.data.framing import Box

Offset = tuple[float, float]
"""Rows and columns by which the weights of a map belong further down, and further right."""

LONG_SIDE = 480  # pixels of a drawn photo
PHOTO_LIGHT, UNSEEN_LIGHT, MAP_LIGHT = 0.5, 0.16, 0.65

PANEL_AREA = 4.0  # square inches; the lengths below are inches too
NARROWEST, WIDEST = 0.65, 3.0  # width over height of a panel
FIGURE_SHAPE = 1.25  # width over height of the figure
MARGIN, GAP, LETTERING, BASELINE = 0.15, 0.12, 0.28, 0.07
WORD_POINTS, PROBABILITY_POINTS = 12.0, 7.5
DOTS_PER_INCH = 150

WORD_TIME, LAST_TIME = 700, 2000  # milliseconds for which a word, and the last one, is shown
CAPTION_HEIGHT = 60  # pixels below the photo of an animation
CAPTION_WIDTH = 0.95  # the widest line as a share of the photo's width

FONT = "DejaVu Sans"  # comes with matplotlib, so that pictures look the same everywhere
UNDRAWABLE = "\N{WHITE SQUARE}"


def draw(
    photo: Image.Image,
    words: Sequence[str],
    probabilities: Sequence[float],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    offset: Offset = (0.0, 0.0),
) -> Figure:
    """The photo, then one panel per word with the word's map.

    Each panel shows the photo in grey with the map as light on it, scaled to the map's own maximum:
    panels do not show how peaked a map is. Parts that the model did not see are dark. Above a panel
    are the word and its probability.

    Args:
        photo: the photo, upright.
        words: of the caption; without any, only the photo is drawn.
        probabilities: of the words.
        maps: of the words.
        crop: the part of the photo that the maps cover.
        offset: of the maps.
    """
    panels = word_panels(photo, maps, crop, offset)
    shown, families = drawable(words)

    # The panel of a tall photo is wide enough for its word; that of a wide one as low as the photo.
    shape = photo.width / photo.height
    width = math.sqrt(PANEL_AREA * min(max(shape, NARROWEST), WIDEST))
    height = width / max(shape, NARROWEST)
    column, row, count = width + GAP, LETTERING + height + GAP, len(panels)
    columns = max(1, min(count, round(math.sqrt(FIGURE_SHAPE * count * row / column))))
    rows = math.ceil(count / columns)
    across = 2 * MARGIN + columns * column - GAP
    down = 2 * MARGIN + rows * row - GAP

    figure = Figure(figsize=(across, down), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)  # which measures the texts
    grid = figure.add_gridspec(
        rows,
        columns,
        left=MARGIN / across,
        right=1 - MARGIN / across,
        bottom=MARGIN / down,
        top=1 - (MARGIN + LETTERING) / down,
        wspace=GAP / width,
        hspace=(LETTERING + GAP) / height,
    )
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(grid[index])
        axes.imshow(panel)
        drawn_height, drawn_width, _ = panel.shape
        axes.set_xlim(-0.5, max(drawn_width, drawn_height * width / height) - 0.5)
        axes.set_axis_off()
        if index == 0:
            continue
        style: dict[str, Any] = {"pad": 72 * BASELINE, "family": families, "parse_math": False}
        chance, small = f"{probabilities[index - 1]:.2f}", PROBABILITY_POINTS
        probability = axes.set_title(chance, loc="right", size=small, color="0.45", **style)
        word = axes.set_title(shown[index - 1], loc="left", size=WORD_POINTS, **style)
        room = (width - BASELINE) * DOTS_PER_INCH - probability.get_window_extent().width
        length = word.get_window_extent().width
        if length > room:
            word.set_fontsize(0.9 * WORD_POINTS * room / length)  # hinting adds a little
    return figure


def frames(
    photo: Image.Image,
    pieces: Sequence[str],
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    offset: Offset = (0.0, 0.0),
) -> list[Image.Image]:
    """For each word the photo with the word's map, above the caption up to this word.

    A caption without words has one frame, the photo. Arguments are as of `draw`; `pieces` are the
    words, each behind the space that belongs before it.
    """
    plain, *panels = word_panels(photo, maps, crop, offset)
    words, families = drawable(pieces)
    found = []
    for count, panel in enumerate(panels or [plain], 1):
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
        found.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return found


def word_panels(
    photo: Image.Image,
    maps: Float[np.ndarray, "T rows columns"],
    crop: Box,
    offset: Offset = (0.0, 0.0),
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """The photo, then for each word the photo in grey with the word's map in colours of inferno.

    They have `LONG_SIDE` pixels on the longer side. Inferno starts at black and its lightness grows
    evenly: a weight of zero adds nothing, and equal differences look equal on dark and bright
    photos.
    """
    scale = LONG_SIDE / max(photo.size)
    width, height = (max(1, round(scale * side)) for side in photo.size)
    if photo.mode != "RGB":  # converting an RGB photo would copy it, however large
        photo = photo.convert("RGB")
    small = photo.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)

    across, down = width / photo.width, height / photo.height
    drawn = (crop[0] * across, crop[1] * down, crop[2] * across, crop[3] * down)
    seen = upsampled(np.ones((1, 1), np.float32), drawn, small.size) > 0
    found = [np.asarray(small)]
    grey = found[0] @ np.array([0.299, 0.587, 0.114], dtype=np.float32) / 255
    grey *= np.where(seen, PHOTO_LIGHT, UNSEEN_LIGHT)
    for weights in maps:
        shown = upsampled(weights, drawn, small.size, offset)
        shown /= max(shown.max(), np.finfo(np.float32).tiny)
        lit = grey[..., None] + colormaps["inferno"](shown)[..., :3] * MAP_LIGHT
        found.append((255 * lit.clip(0, 1)).round().astype(np.uint8))
    return found


def upsampled(
    weights: Float[np.ndarray, "rows columns"],
    crop: Box,
    size: tuple[int, int],
    offset: Offset = (0.0, 0.0),
) -> Float[np.ndarray, "height width"]:
    """A map at the resolution of the photo; zero at pixels whose centre is outside the crop.

    The grid covers the crop, and each weight belongs to the centre of its cell (`align_corners` is
    false, in PyTorch's terms), moved by the offset; beyond the outermost centres the edge cells are
    repeated. A cubic B-spline of the weights never rings below zero as interpolating cubics do. Its
    slight blur stands in for the Gaussian filter of the paper (section 5.4).

    Args:
        weights: of the regions, rows from top to bottom.
        crop: what the grid covers.
        size: width and height of the photo.
        offset: of the map.
    """
    left, top, across, down = crop
    rows, columns = weights.shape
    axes = (size[1], top, down, rows, offset[0]), (size[0], left, across, columns, offset[1])
    splines = []
    for pixels, start, extent, cells, moved in axes:
        # In cells, whose centres are integers.
        place = (np.arange(pixels) + 0.5 - start) / extent * cells - 0.5
        seen = (place >= -0.5) & (place <= cells - 0.5)
        place = (place - moved).clip(-0.5, cells - 0.5)
        distance = abs(place[:, None] - np.arange(-2, cells + 2))  # two more cells at each edge
        near = (4 - 6 * distance**2 + 3 * distance**3) / 6
        far = (2 - distance).clip(0) ** 3 / 6
        shares = np.where(distance < 1, near, far) * seen[:, None]
        splines.append(shares.astype(np.float32))
    padded = np.pad(weights.astype(np.float32), 2, mode="edge")
    return splines[0] @ padded @ splines[1].T


def drawable(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The drawable form of words of any script, and the installed font families that draw it.

    Invisible characters (joiners, variation selectors, controls) are left out; characters without
    an installed font become white squares, so that Matplotlib does not warn of missing glyphs.
    """
    shown = [
        "".join(c for c in word if c.isprintable() and not "\ufe00" <= c <= "\ufe0f")
        for word in words
    ]
    families, missing = _fonts(frozenset("".join(shown)))
    table = {ord(character): UNDRAWABLE for character in missing}
    return [word.translate(table) for word in shown], families


@lru_cache(maxsize=256)
def _fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """FONT and the other fonts that the characters need, and the characters without a font."""
    regular = {
        entry.name
        for entry in fontManager.ttflist
        if entry.weight == 400 and entry.style == "normal" and "Last Resort" not in entry.name
    }
    families, missing = [], characters
    for family in [FONT, *sorted(regular - {FONT})]:
        font = get_font(findfont(FontProperties(family=family)))
        drawn = {character for character in missing if font.get_char_index(ord(character))}
        if drawn or family == FONT:
            families.append(family)
        missing -= drawn
        if not missing:
            break
    return tuple(families), missing
