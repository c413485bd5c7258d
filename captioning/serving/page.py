"""The server's pages: where users drop photos, and a description of the API."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.search import BeamSearch, Sampling, Search
from captioning.serving.demo import Examples
from captioning.serving.form import MOST_CAPTIONS, CaptionForm
from captioning.serving.refusals import MEANINGS, Limits
from captioning.viewing import viewer

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Security headers for browsers, besides the content security policy."""

TEMPERATURE = 0.7
"""The default for sampling; below 1, since at 1 rare words are often wrong."""


def page(
    model: str,
    search: Search,
    limits: Limits,
    maps: Sequence[str],
    examples: Examples | None = None,
) -> str:
    """The page that sends photos.

    Args:
        model: its name.
        search: gives the initial settings.
        limits: of requests.
        maps: the maps of a word to choose from; the first is selected.
        examples: pictures to click, of which the first is captioned at once.
    """
    is_sampling = isinstance(search, Sampling)
    width = search.width if isinstance(search, BeamSearch) else 1
    temperature = search.temperature if isinstance(search, Sampling) else TEMPERATURE
    return Template(asset("page.html")).substitute(
        model=escape(model),
        tabs=examples.tabs if examples else "",
        examples=examples.buttons if examples else "",
        largest=limits.bytes,
        megabytes=f"{limits.bytes / 1e6:g}",
        by_sampling="checked" if is_sampling else "",
        by_beam="" if is_sampling else "checked",
        beam=min(width, MOST_CAPTIONS),
        temperature=f"{temperature:g}",
        most=MOST_CAPTIONS,
        several_maps="" if len(maps) > 1 else "hidden",
        maps="".join(f'<option value="{name}">{name}</option>' for name in maps),
        style=asset("page.css"),
        script=asset("page.js"),
        view_style=viewer.asset("viewer.css"),
        view_script=viewer.asset("viewer.js"),
    )


def docs(address: str) -> str:
    """The description of the API, with an example for the server's address."""
    fields = {name: field.description or "" for name, field in CaptionForm.model_fields.items()}
    return Template(asset("docs.html")).substitute(
        address=escape(address),
        fields=_rows(fields),
        refusals=_rows({str(status): meaning for status, meaning in MEANINGS.items()}),
        style=asset("page.css"),
        view_style=viewer.asset("viewer.css"),
    )


def _rows(meanings: dict[str, str]) -> str:
    return "".join(
        f"<tr><th><code>{escape(name)}</code></th><td>{escape(meaning)}</td></tr>"
        for name, meaning in meanings.items()
    )


def with_security_headers(app: ASGIApp) -> ASGIApp:
    """The app, with the security headers in every answer."""
    styles = [asset("page.css"), viewer.asset("viewer.css")]
    scripts = [asset("page.js"), viewer.asset("viewer.js")]
    policy = viewer.policy(styles, scripts).replace("img-src data:", "img-src 'self' data:")
    policy += "; connect-src 'self'; frame-ancestors 'none'"

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS | {"Content-Security-Policy": policy})
            await send(message)

        await app(scope, receive, sent)

    return wrapped


def asset(name: str) -> str:
    """The text of a part of the server's pages."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")
