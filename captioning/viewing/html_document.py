"""HTML documents with their style sheets and scripts in them, and a policy that allows no others.

All text in them is ASCII, and data becomes text, never markup, whatever a vocabulary or a file name
contains.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from captioning.files import written_whole

PACKAGE = Path(__file__).parents[1]

TEMPLATES = Environment(
    loader=FileSystemLoader(PACKAGE),
    autoescape=True,
    trim_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


def asset(name: str) -> str:
    """The text of a file of the package, such as ``viewing/viewer.css``."""
    return (PACKAGE / name).read_text(encoding="ascii")


TEMPLATES.globals |= {"asset": asset, "quote": quote}


def html_document(
    template: str,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    allowed: Mapping[str, str] | None = None,
    **values: Any,
) -> str:
    """A complete document.

    Args:
        template: the name of one that extends ``viewing/document.html``, as `asset` takes it.
        title: of the document.
        styles: the names of style sheets.
        scripts: the names of scripts, which run at the end.
        allowed: as `content_policy` takes it.
        values: what the template shows.
    """
    values |= {"title": title, "styles": styles, "scripts": scripts}
    policy = content_policy(styles, scripts, allowed)
    text = TEMPLATES.get_template(template).render(policy=policy, **values)
    # Also of file names that are not valid Unicode.
    return text.encode("ascii", "xmlcharrefreplace").decode()


def content_policy(
    styles: Sequence[str], scripts: Sequence[str], allowed: Mapping[str, str] | None = None
) -> str:
    """The content security policy of a document with these style sheets and scripts in it.

    Nothing else is allowed but pictures in data URIs, and what `allowed` adds: further sources by
    directive, such as ``{"connect-src": "'self'"}``.
    """

    def hashes(names: Sequence[str]) -> str:
        digests = (hashlib.sha256(asset(name).encode()).digest() for name in names)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    sources = {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "style-src": hashes(styles),
        "script-src": hashes(scripts),
    }
    for directive, further in (allowed or {}).items():
        sources[directive] = f"{further} {sources.get(directive, '')}".strip()
    return "; ".join(" ".join(entry) for entry in sources.items())


def save_html(content: str, path: str | Path) -> None:
    """Write a document, atomically.

    Raises:
        InputError: the file cannot be written.
    """
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))
