"""The API's documentation as one self-contained page; FastAPI's own loads scripts from a CDN."""

from collections.abc import Iterator
from html import escape
from string import Template
from typing import Any

from captioning.serving.page import asset
from captioning.viewing import viewer


def docs(schema: dict[str, Any], address: str) -> str:
    """An HTML document of the operations in an OpenAPI schema.

    Args:
        schema: of the API.
        address: of the server, for an example.
    """
    operations = [
        part
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        for part in _operation(f"{method.upper()} {path}", operation, schema)
    ]
    return Template(asset("docs.html")).substitute(
        view_style=viewer.asset("viewer.css"),
        style=asset("page.css"),
        address=escape(address),
        operations="\n".join(operations),
    )


def _operation(title: str, operation: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """The request and the response of an operation."""
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation['description'])}</p>"
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield from _fields("Field", content["schema"], schema)
    for kind, content in operation["responses"]["200"].get("content", {}).items():
        if "schema" in content:
            yield from _fields("Answer", content["schema"], schema)
        else:
            yield f"<p>Answer: <code>{escape(kind)}</code></p>"
    refusals = [
        (status, "", response["description"])
        for status, response in operation["responses"].items()
        if status != "200"
    ]
    if refusals:
        yield _table(("Refusal", "", '{"error": "a sentence that says why"}'), refusals)


def _fields(heading: str, schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[str]:
    """A table of an object's fields, and one for each nested object."""
    model = _resolved(schema, whole)
    rows, inner = [], []
    for name, field in model["properties"].items():
        rows.append((name, _type(field, name in model.get("required", ())), _meaning(field, whole)))
        for part in (field, field.get("items", {})):
            if "$ref" in part:
                inner.append((f"In {name}", part))
    yield _table((heading, "", "Meaning"), rows)
    for title, part in inner:
        yield from _fields(title, part, whole)


def _type(field: dict[str, Any], is_required: bool) -> str:
    """The type of a field and its range."""
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    kind = kinds[0]
    name = "file" if "contentMediaType" in kind or kind.get("format") == "binary" else None
    words = [name or kind.get("type", "object")]
    if "minimum" in kind:
        words.append(f"{kind['minimum']:g} to {kind['maximum']:g}")
    if is_required:
        words.append("required")
    return ", ".join(words)


def _meaning(field: dict[str, Any], whole: dict[str, Any]) -> str:
    if "description" in field:
        return str(field["description"])
    return str(_resolved(field.get("items", field), whole).get("description", ""))


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """The schema, with a reference followed."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def _table(heads: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = [
        f'<tr><td><code>{escape(name)}</code></td><td class="type">{escape(kind)}</td>'
        f"<td>{escape(meaning)}</td></tr>"
        for name, kind, meaning in rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
