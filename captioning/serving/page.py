"""The page on which users drop photos and explore their captions."""

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from captioning.search import BeamSearch, Sampling, Search
from captioning.serving.form import MOST_CAPTIONS
from captioning.serving.limits import Limits
from captioning.viewing import viewer

SHOWN_TEMPERATURE = "0.7"
"""The default for sampling; below 1, since at 1 rare words are often wrong."""


def page(
    model: str, search: Search, limits: Limits, maps: Sequence[str], draws_scenes: bool = False
) -> str:
    """The HTML document.

    Args:
        model: its name.
        search: gives the initial settings.
        limits: of requests.
        maps: the maps of a word to choose from, the first at first.
        draws_scenes: offer drawn scenes, and show one at first.
    """
    is_sampling = isinstance(search, Sampling)
    width = search.width if isinstance(search, BeamSearch) else 1
    return Template(asset("page.html")).substitute(
        model=escape(model),
        scenes="" if draws_scenes else "hidden",
        largest=limits.bytes,
        megabytes=f"{limits.bytes / 1e6:g}",
        by_sampling="checked" if is_sampling else "",
        by_beam="" if is_sampling else "checked",
        beam=min(width, MOST_CAPTIONS),
        temperature=f"{search.temperature:g}"
        if isinstance(search, Sampling)
        else SHOWN_TEMPERATURE,
        most=MOST_CAPTIONS,
        several_maps="" if len(maps) > 1 else "hidden",
        maps="".join(f'<option value="{name}">{name}</option>' for name in maps),
        style=asset("page.css"),
        script=asset("page.js"),
        view_style=viewer.asset("viewer.css"),
        view_script=viewer.asset("viewer.js"),
    )


@cache
def policy() -> str:
    """The content security policy: styles and scripts of the page alone, nothing from elsewhere."""
    styles = [asset("page.css"), viewer.asset("viewer.css")]
    scripts = [asset("page.js"), viewer.asset("viewer.js")]
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(map(viewer.source_hash, styles))}",
            f"script-src {' '.join(map(viewer.source_hash, scripts))}",
            "img-src data:",
            "connect-src 'self'",
            *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        ]
    )


@cache
def asset(name: str) -> str:
    """The text of a part of the server's pages."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")
