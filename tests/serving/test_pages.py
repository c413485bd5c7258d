from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient


class Sources(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            sources = [value or "" for name, value in attributes if name in ("src", "href")]
            self.found += [source for source in sources if not source.startswith("data:")]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_anywhere(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert not Sources(page.text).found


def test_the_docs_name_every_field_and_refusal_of_the_schema(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    operation = schema["paths"]["/caption"]["post"]
    fields = schema["components"]["schemas"]["CaptionForm"]["properties"]
    for name in [*fields, *operation["responses"]]:
        assert name == "200" or f"<code>{name}</code>" in page


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/openapi.json", "/nowhere"])
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
