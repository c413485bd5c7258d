"""A map laid over the photo, one panel per word, as in figures 2 and 3 of the paper.

Xu et al., "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
ICML 2015, https://arxiv.org/abs/1502.03044.
"""

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from captioning.captioner.caption import Caption
from captioning.files import written_whole
from captioning.viewing.text_drawing import FONT, drawable, fit
from captioning.viewing.viewer import Photo, upright

Picture = UInt8[np.ndarray, "height width 3"]

LONG_SIDE = 480  # pixels of a drawn photo
PHOTO_LIGHT, UNSEEN_LIGHT, MAP_LIGHT = 0.5, 0.16, 0.65

PANEL_AREA = 4.0  # square inches; the lengths below are inches too
NARROWEST, WIDEST = 0.65, 3.0  # width over height of a panel
FIGURE_SHAPE = 1.25  # width over height of the figure
MARGIN, GAP, LETTERING, BASELINE = 0.15, 0.12, 0.28, 0.07
WORD_POINTS, SMALLEST_POINTS, PROBABILITY_POINTS = 12.0, 7.0, 7.5
DOTS_PER_INCH = 150


def save(photo: Photo, caption: Caption, path: str | Path, map_name: str | None = None) -> None:
    """Write the figure of `draw` as a PNG file, atomically.

    Raises:
        InputError: as `draw`, or the file cannot be written.
    """
    figure = draw(photo, caption, map_name)
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH)


def draw(photo: Photo, caption: Caption, map_name: str | None = None) -> Figure:
    """The photo, then one panel per word with the word's map.

    Each panel shows the photo in grey with the map as light on it. Every map is scaled to its own
    maximum, so panels do not show how peaked a map is. Parts that the model did not see are dark.
    Above a panel are the word and its probability. pyplot's global state stays untouched.

    Args:
        photo: the photo of the caption, or its path.
        caption: without words, only the photo is drawn.
        map_name: which map; defaults to the caption's first shown map.

    Raises:
        InputError: the photo cannot be read or is not the caption's, or there is no such map.
    """
    displayed = _displayed(photo, caption)
    pictures = [displayed, *_lit(displayed, caption, map_name)]
    words, families = drawable(caption.words)

    width, height = _panel(*caption.size)
    columns = _columns(len(pictures), width + GAP, LETTERING + height + GAP)
    rows = math.ceil(len(pictures) / columns)
    across = 2 * MARGIN + columns * (width + GAP) - GAP
    down = 2 * MARGIN + rows * (LETTERING + height + GAP) - GAP
    figure = Figure(figsize=(across, down), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)

    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        left = MARGIN + column * (width + GAP)
        bottom = down - MARGIN - row * (LETTERING + height + GAP) - LETTERING - height
        axes = figure.add_axes((left / across, bottom / down, width / across, height / down))
        axes.imshow(picture)
        axes.set_anchor("NW")  # below its word, even if the photo is narrower than the panel
        axes.set_axis_off()
        if index == 0:
            continue
        line = (bottom + height + BASELINE) / down
        probability = figure.text(
            (left + width) / across,
            line,
            f"{caption.probabilities[index - 1]:.2f}",
            fontsize=PROBABILITY_POINTS,
            fontfamily=FONT,
            color="0.45",
            horizontalalignment="right",
        )
        word = figure.text(
            left / across,
            line,
            words[index - 1],
            fontsize=WORD_POINTS,
            fontfamily=families,
            parse_math=False,
        )
        room = (width - BASELINE) * DOTS_PER_INCH - probability.get_window_extent().width
        fit(word, room, SMALLEST_POINTS)
    return figure


def word_pictures(photo: Photo, caption: Caption, map_name: str | None = None) -> list[Image.Image]:
    """The panels of `draw` without text, `LONG_SIDE` pixels on the longer side; one per word.

    Raises:
        InputError: as `draw`.
    """
    pictures = _lit(_displayed(photo, caption), caption, map_name)
    return [Image.fromarray(picture) for picture in pictures]


def upsampled(
    weights: Float[Tensor, "rows columns"],
    crop: tuple[float, float, float, float],
    size: tuple[int, int],
) -> Float[np.ndarray, "height width"]:
    """A map at the resolution of the photo.

    The grid covers the crop, and each weight belongs to the centre of its cell (`align_corners` is
    false, in PyTorch's terms); beyond the outermost centres the edge cells are repeated. The
    interpolation is a cubic B-spline: unlike interpolating cubics it never rings below zero. Its
    slight blur stands in for the Gaussian filter of the paper (section 5.4).

    Args:
        weights: of the regions, rows from top to bottom.
        crop: left, top, width and height of what the model saw, in pixels of the photo.
        size: width and height of the photo.

    Returns:
        Values on the scale of `weights`; zero at pixels whose centre is outside the crop.
    """
    left, top, across, down = crop
    rows, columns = weights.shape
    vertical = _spline(size[1], top, down, rows)
    horizontal = _spline(size[0], left, across, columns)
    return vertical @ weights.detach().cpu().float().numpy() @ horizontal.T


def _spline(
    pixels: int, start: float, extent: float, cells: int
) -> Float[np.ndarray, "pixels cells"]:
    """The weight of each cell at every pixel of one axis; zero rows outside the crop."""
    place = (np.arange(pixels) + 0.5 - start) / extent * cells - 0.5  # cell centres are integers
    before = np.floor(place)
    x = place - before
    kernel = (
        (1 - x) ** 3 / 6,
        (3 * x**3 - 6 * x**2 + 4) / 6,
        (-3 * x**3 + 3 * x**2 + 3 * x + 1) / 6,
        x**3 / 6,
    )
    shares = np.zeros((pixels, cells), dtype=np.float32)
    for offset, share in zip((-1, 0, 1, 2), kernel, strict=True):
        cell = np.clip(before + offset, 0, cells - 1).astype(int)
        np.add.at(shares, (np.arange(pixels), cell), share.astype(np.float32))
    shares[(place < -0.5) | (place > cells - 0.5)] = 0
    return shares


def _displayed(photo: Photo, caption: Caption) -> Picture:
    """The photo with `LONG_SIDE` pixels on its longer side."""
    image = upright(photo, caption)
    scale = LONG_SIDE / max(image.size)
    width, height = (max(1, round(scale * side)) for side in image.size)
    if image.mode != "RGB":  # converting an RGB photo would copy it, however large
        image = image.convert("RGB")
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3))


def _lit(photo: Picture, caption: Caption, map_name: str | None) -> list[Picture]:
    """The photo in grey with each word's map added in the colours of inferno.

    Inferno starts at black and its lightness grows evenly: a weight of zero adds nothing, and equal
    differences look equal on dark and bright photos.
    """
    height, width, _ = photo.shape
    across, down = width / caption.size[0], height / caption.size[1]
    left, top, crop_width, crop_height = caption.crop
    crop = (left * across, top * down, crop_width * across, crop_height * down)
    seen = upsampled(torch.ones(1, 1), crop, (width, height)) > 0
    grey = photo @ np.array([0.299, 0.587, 0.114], dtype=np.float32) / 255
    grey *= np.where(seen, PHOTO_LIGHT, UNSEEN_LIGHT)

    pictures = []
    for weights in caption.map(map_name):
        shown = upsampled(weights, crop, (width, height))
        shown /= max(shown.max(), np.finfo(np.float32).tiny)
        light = colormaps["inferno"](shown)[..., :3] * MAP_LIGHT
        lit = grey[..., None] + light
        pictures.append((255 * lit.clip(0, 1)).round().astype(np.uint8))
    return pictures


def _panel(width: int, height: int) -> tuple[float, float]:
    """Width and height in inches of a panel for a photo of this shape.

    The panel of a tall photo is wide enough for its word; that of a wide photo is as low as the
    photo.
    """
    shape = min(max(width / height, NARROWEST), WIDEST)
    across = math.sqrt(PANEL_AREA * shape)
    return across, min(across / shape, across * height / width)


def _columns(panels: int, width: float, height: float) -> int:
    """The number of columns with a figure near `FIGURE_SHAPE` and few empty places."""

    def cost(columns: int) -> float:
        rows = math.ceil(panels / columns)
        empty = rows * columns - panels
        shape = columns * width / (rows * height)
        return abs(math.log(shape / FIGURE_SHAPE)) + empty / panels

    return min(range(1, panels + 1), key=cost)
