"""HTML documents with their style sheets and scripts in them, and a policy that allows no others.

All text in them is ASCII, and data becomes text, never markup, whatever a vocabulary or a file name
contains.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from captioning.files import written_whole

PACKAGE = Path(__file__).parents[1]


def asset(name: str) -> str:
    """The text of a file of the package, such as ``viewing/viewer.css``."""
    return (PACKAGE / name).read_text(encoding="ascii")


def html_document(
    title: str,
    body: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    allowed: Mapping[str, str] | None = None,
) -> str:
    """A complete document.

    Args:
        title: as plain text.
        body: as HTML.
        styles: the names of style sheets, as `asset` takes them.
        scripts: the same of scripts, which run at the end.
        allowed: as `content_policy` takes it.
    """
    return Template(asset("viewing/document.html")).substitute(
        policy=content_policy(styles, scripts, allowed),
        title=html_text(title),
        styles="\n".join(f"<style>{asset(name)}</style>" for name in styles),
        body=body,
        scripts="\n".join(f"<script>{asset(name)}</script>" for name in scripts),
    )


def content_policy(
    styles: Sequence[str], scripts: Sequence[str], allowed: Mapping[str, str] | None = None
) -> str:
    """The content security policy of a document with these style sheets and scripts in it.

    Nothing else is allowed but pictures in data URIs, and what `allowed` adds: further sources by
    directive, such as ``{"connect-src": "'self'"}``.
    """
    sources = {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "style-src": _hashes(styles),
        "script-src": _hashes(scripts),
    }
    for directive, further in (allowed or {}).items():
        sources[directive] = f"{further} {sources.get(directive, '')}".strip()
    return "; ".join(" ".join(entry) for entry in sources.items())


def _hashes(names: Sequence[str]) -> str:
    digests = (hashlib.sha256(asset(name).encode()).digest() for name in names)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def save_html(content: str, path: str | Path) -> None:
    """Write a document, atomically.

    Raises:
        InputError: the file cannot be written.
    """
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode("ascii"))


def script_json(value: Any) -> str:
    """JSON that cannot close the HTML element it stands in."""
    escapes = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
    return json.dumps(value, separators=(",", ":")).translate(escapes)


def html_text(text: str) -> str:
    """Plain text as HTML; also of file names that are not valid Unicode."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()
