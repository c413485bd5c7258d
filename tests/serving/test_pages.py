import json
import re
from html.parser import HTMLParser

import httpx
import pytest

from tests.serving.test_batching import connection


class Sources(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            self.found += [value or "" for name, value in attributes if name in ("src", "href")]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_anywhere(client: httpx.Client, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert not Sources(page.text).found


def test_the_docs_name_every_field_and_refusal(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    operation = schema["paths"]["/caption"]["post"]
    fields = schema["components"]["schemas"]["CaptionForm"]["properties"]
    for name in [*fields, *operation["responses"]]:
        assert name == "200" or f"<code>{name}</code>" in page


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/openapi.json", "/nowhere"])
def test_every_answer_has_the_security_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/page.html",
        "/app.py",
        "/../../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/caption/../../page.css",
        "/docs/..%2fpage.js",
    ],
)
def test_no_file_of_the_server_can_be_had(client: httpx.Client, path: str) -> None:
    bare = connection(client)  # httpx would make the path a proper one
    bare.request("GET", path)
    answer = bare.getresponse()
    assert (answer.status, json.loads(answer.read())) == (
        404,
        {"error": "unknown address; /docs lists the addresses"},
    )
    bare.close()


def test_a_wrong_method_is_answered_with_the_right_one(client: httpx.Client) -> None:
    answer = client.get("/caption")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert re.match("this address takes another method", answer.json()["error"])
