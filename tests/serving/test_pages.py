import pytest
from jsonschema import Draft202012Validator, ValidationError
from starlette.testclient import TestClient

from captioning.captioner import load
from tests.conftest import tags
from tests.serving.conftest import Ask


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_anywhere(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    asked = [a.get("src") or a.get("href") for tag, a in tags(page.text) if tag != "a"]
    assert {address for address in asked if address} == {"data:,"}


def test_the_docs_name_every_field_and_refusal_of_the_schema(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    statuses = {*schema["paths"]["/caption"]["post"]["responses"]} - {"200"}
    parts = schema["components"]["schemas"].values()
    for name in [*statuses, *(field for part in parts for field in part["properties"])]:
        assert f"<code>{name}</code>" in page
    for part in parts:
        assert all(field.get("description") for field in part["properties"].values())


def described(client: TestClient, path: str, method: str, status: int) -> Draft202012Validator:
    """Validates answers by the server's description of them."""
    schema = client.get("/openapi.json").json()
    content = schema["paths"][path][method]["responses"][str(status)]["content"]
    part = content["application/json"]["schema"]
    return Draft202012Validator(part | {"components": schema["components"]})


@pytest.mark.parametrize("name", ["shapes", "photos"])
def test_answers_are_as_the_schema_describes_them(ask: Ask, name: str, photo: bytes) -> None:
    client = ask(captioner=load(name))  # one is calibrated
    one, two = [("photo", photo)], [("photo", photo), ("photo", b"no photo")]
    many = {"captions": "3", "beam": "3"}
    view = {"view": "true", "compare": "evidence", "captions": "2", "beam": "2"}
    for settings in ({}, many, view, {"text": "a red circle" if name == "shapes" else "a dog"}):
        for files in (one, two):
            answer = client.post("/caption", files=files, data=settings)
            assert answer.status_code == 200
            described(client, "/caption", "post", 200).validate(answer.json())
    refused = client.post("/caption", files=one, data={"beam": "0"})
    described(client, "/caption", "post", 422).validate(refused.json())
    described(client, "/health", "get", 200).validate(client.get("/health").json())


def test_the_examples_of_answers_are_as_the_schema_describes_them(client: TestClient) -> None:
    responses = client.get("/openapi.json").json()["paths"]["/caption"]["post"]["responses"]
    examples = responses["200"]["content"]["application/json"]["examples"]
    validator = described(client, "/caption", "post", 200)
    for example in examples.values():
        validator.validate(example["value"])
    with pytest.raises(ValidationError):
        validator.validate({"captions": [{"caption": "a dog"}]})


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/docs", "/health", "/openapi.json", "/nowhere"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers
