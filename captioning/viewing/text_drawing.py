"""Draws words of any script with the installed fonts."""

from collections.abc import Sequence
from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text

FONT = "DejaVu Sans"  # comes with matplotlib, so that pictures look the same everywhere
UNDRAWABLE = "\N{WHITE SQUARE}"


def drawable(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The drawable form of words, and the font families that draw it.

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
    upright = {
        entry.name
        for entry in fontManager.ttflist
        if entry.weight == 400 and entry.style == "normal" and "Last Resort" not in entry.name
    }
    families, missing = [], characters
    for family in [FONT, *sorted(upright - {FONT})]:
        font = get_font(findfont(FontProperties(family=family)))
        drawn = {character for character in missing if font.get_char_index(ord(character))}
        if drawn or family == FONT:
            families.append(family)
        missing -= drawn
        if not missing:
            break
    return tuple(families), missing


def fit(text: Text, room: float, smallest: float) -> None:
    """Make a text smaller, then cut it if necessary, until it is no wider than `room`.

    Args:
        text: a text that has been added to a figure.
        room: pixels.
        smallest: the font size in points below which letters are cut instead.
    """
    length = text.get_window_extent().width
    if length > room:
        points = text.get_fontproperties().get_size_in_points()
        text.set_fontsize(max(smallest, points * room / length))
    word = text.get_text()
    while text.get_window_extent().width > 1.01 * room and len(word) > 1:  # hinting adds a little
        word = word[:-1]
        text.set_text(word + "…")
