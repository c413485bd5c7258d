"""The protocols of OpenAI and Ollama, spoken by their own clients on loopback."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from captioning.captioner import Captioner, load
from captioning.serving import Limits, Protection, application
from captioning.web.page import PHOTOS
from tests.serving.conftest import Ask, served

PHOTO = PHOTOS["cat.jpg"].read_bytes()
BASE64 = base64.b64encode(PHOTO).decode()
DATA_URL = f"data:image/jpeg;base64,{BASE64}"
ASK = "What is in this photo?"
ASK_KEYWORDS = "Give five keywords."


class Description(BaseModel):
    """What a program may ask for as JSON."""

    description: str
    tags: list[str]


class Weather(BaseModel):
    weather: str


@pytest.fixture(scope="module")
def photo_model() -> Captioner:
    return load()


@pytest.fixture(scope="module")
def address(photo_model: Captioner) -> Iterator[str]:
    """The address of a server of the photo model."""
    limits = Limits()
    with served(Protection(application(photo_model, "photos", 16, limits), limits), limits) as url:
        yield url


@pytest.fixture
def openai_client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        yield client


def question(text: str, url: str = DATA_URL) -> list[Any]:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "system", "content": "You tag photos."}, {"role": "user", "content": parts}]


@pytest.mark.integration
def test_the_client_of_openai_gets_captions_keywords_and_json(
    openai_client: openai.OpenAI, photo_model: Captioner
) -> None:
    expected = photo_model(PHOTO)
    likely = [word for word, chance in expected.keywords.items() if chance >= 0.5]
    assert [model.id for model in openai_client.models.list()] == ["photos"]
    create: Any = openai_client.chat.completions.create
    answer = create(model="any", messages=question(ASK))
    assert answer.choices[0].message.content == expected.sentence
    assert (answer.model, answer.choices[0].finish_reason) == ("photos", "stop")
    chunks = list(create(model="any", messages=question(ASK), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected.sentence
    assert chunks[-1].choices[0].finish_reason == "stop"
    answer = create(model="any", messages=question(ASK_KEYWORDS))
    assert answer.choices[0].message.content == ", ".join(likely)
    answer = create(model="any", messages=question(ASK), response_format={"type": "json_object"})
    content = json.loads(answer.choices[0].message.content)
    assert list(content) == ["caption", "confidence", "keywords", "labels"]
    assert [label["name"] for label in content["labels"]] == list(expected.keywords)
    parsed = openai_client.chat.completions.parse(
        model="any", messages=question(ASK), response_format=Description
    )
    assert parsed.choices[0].message.parsed == Description(
        description=expected.sentence, tags=likely
    )
    for given, sentence in (
        ({"messages": question(ASK, "https://example.org/a.jpg")}, "addresses are never fetched"),
        ({"messages": question(ASK, "data:image/jpeg;base64,")}, "photo: empty file"),
        ({"messages": question("a" * 10**6)}, "messages.1.content.0.text: String should have at"),
    ):
        with pytest.raises(openai.APIStatusError, match=sentence) as error:
            create(model="any", **given)
        assert 400 <= error.value.status_code < 500
        assert "\n" not in error.value.message


@pytest.mark.integration
def test_the_script_of_the_how_to_prints_a_caption(
    address: str, photo_model: Captioner, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/photo-managers.md").read_text("utf-8")
    script = page.partition("# ask.py\n")[2].partition("```")[0]
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    command = [sys.executable, "-c", script.replace("http://127.0.0.1:8000", address)]
    printed = subprocess.check_output(command, text=True, cwd=tmp_path)
    assert printed == f"{photo_model(PHOTO).sentence}\n"


@pytest.fixture
def ollama_client(address: str) -> Iterator[ollama.Client]:
    with closing(ollama.Client(address)) as client:
        yield client


@pytest.mark.integration
def test_the_client_of_ollama_gets_captions_keywords_and_json(
    ollama_client: ollama.Client, photo_model: Captioner
) -> None:
    client, expected = ollama_client, photo_model(PHOTO)
    assert [model.model for model in client.list().models] == ["photos"]
    assert [model.model for model in client.ps().models] == ["photos"]
    assert client.show("photos").capabilities == ["completion", "vision"]
    whole = client.generate("photos", ASK, images=[PHOTO])
    assert (whole.response, whole.done) == (expected.sentence, True)
    parts = list(client.generate("photos", ASK, images=[PHOTO], stream=True))
    assert "".join(part.response for part in parts) == expected.sentence
    assert [part.done for part in parts] == [False, True]
    messages = [{"role": "user", "content": ASK, "images": [PHOTO]}]
    assert client.chat("photos", messages).message.content == expected.sentence
    stream = client.chat("photos", messages, stream=True)
    assert "".join(part.message.content or "" for part in stream) == expected.sentence
    labels = client.generate("photos", "Return labels.", images=[PHOTO], format="json").response
    assert json.loads(labels)["labels"][0].keys() == {"name", "confidence", "topicality"}
    schema = Description.model_json_schema()
    answer = client.chat("photos", messages, format=schema).message.content
    assert Description.model_validate_json(answer or "").description == expected.sentence
    for images, sentence in (([], "no pictures; send one"), ([b"no photo"], "photo: not an image")):
        with pytest.raises(ollama.ResponseError, match=sentence) as error:
            client.generate("photos", ASK, images=images)
        assert 400 <= error.value.status_code < 500


def test_bad_questions_are_refused_in_one_line(ask: Ask, photo_model: Captioner) -> None:
    client = ask(captioner=photo_model, bytes=3_000_000)
    for given, status, sentence in (
        ({}, 422, "no pictures; send one"),
        ({"images": [BASE64] * 2}, 422, "2 pictures; send one"),
        ({"images": ["AAA"]}, 422, "the picture is not base64"),
        ({"images": ["https://a/b,c.jpg"]}, 422, "addresses are never fetched"),
        ({"images": ["/etc/passwd="]}, 415, "photo: not an image"),
        ({"images": BASE64}, 422, "images: Input should be a valid array"),
        ({"images": [BASE64], "prompt": "a" * 10**6}, 422, "prompt: String should have at most"),
        ({"images": [BASE64], "prompt": "a" * 4 * 10**6}, 413, "more than 3 MB"),
        ({"images": [BASE64], "numbers": [1] * 200_000}, 413, "more than 100,000 values"),
        ({"messages": [{}] * 2000}, 422, "messages: List should have at most 1000"),
        ({"images": [BASE64], "format": Weather.model_json_schema()}, 422, "no 'weather': this"),
    ):
        answer = client.post("/api/chat", json=given)
        assert (answer.status_code, answer.json()["error"][: len(sentence)]) == (status, sentence)
    answer = client.post("/v1/chat/completions", content=b"photo=1")
    assert answer.json()["error"]["message"].startswith("the request: Invalid JSON")
    assert client.get("/api/version").json() == {"version": "0.6.4"}
    elsewhere = client.post("/v1/chat/completions", headers={"Host": "example.org"})
    assert elsewhere.json()["error"]["message"].startswith("this server is not example.org")
    foreign = client.post("/api/chat", json={}, headers={"Origin": "https://example.org"})
    assert (foreign.status_code, type(foreign.json()["error"])) == (403, str)


def test_a_model_without_calibration_has_no_keywords(client: TestClient) -> None:
    given = {"images": [BASE64], "stream": False}
    refused = client.post("/api/generate", json=given | {"prompt": ASK_KEYWORDS})
    assert refused.json()["error"].startswith("this model is not calibrated for keywords")
    answer = client.post("/api/generate", json=given | {"format": "json"}).json()
    assert list(json.loads(answer["response"])) == ["caption"]
