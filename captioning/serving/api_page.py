"""The page that describes the API."""

from html import escape
from pathlib import Path
from string import Template

from captioning.serving.form import CaptionForm
from captioning.serving.refusals import MEANINGS
from captioning.viewing import viewer
from captioning.web.page import asset


def docs(address: str) -> str:
    """The description of the API, with an example for the server's address."""
    fields = {name: field.description or "" for name, field in CaptionForm.model_fields.items()}
    template = Path(__file__).with_name("docs.html").read_text(encoding="ascii")
    return Template(template).substitute(
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
