import pytest
from starlette.testclient import TestClient

from tests.conftest import tags


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_anywhere(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    asked = [a.get("src") or a.get("href") for tag, a in tags(page.text) if tag != "a"]
    assert {address for address in asked if address} == {"data:,"}


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
