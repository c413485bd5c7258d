"""The protocols of OpenAI and of Ollama, by which programs ask a model about a picture.

No prompt is understood: the answer is the caption, keywords if the prompt has that word, and JSON
if the request asks for it. Addresses of pictures are never fetched.
"""

import binascii
import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError, field_validator

from captioning.captioner import Caption
from captioning.captioner.calibration import rounded
from captioning.errors import format_value
from captioning.serving.service import CaptionService

ASKS_KEYWORDS = re.compile(r"\b(keyword|label|tag)s?\b", re.IGNORECASE)
OLLAMA_VERSION = "0.6.4"  # of the protocol: the first that says what a model is capable of
KEYWORD_CHANCE = 0.5  # of a keyword that is given without its chance
LONGEST_PROMPT = 100_000  # characters
MOST_MESSAGES = 1000
MOST_VALUES = 100_000  # of a request; they are parsed while no other request is answered


class Part(BaseModel):
    """A part of a message, in OpenAI's protocol."""

    text: str = Field("", max_length=LONGEST_PROMPT)
    address: str | None = Field(
        None, validation_alias=AliasChoices(AliasPath("image_url", "url"), "image_url")
    )


class Message(BaseModel):
    """A message: pictures are among its parts in OpenAI's protocol, beside them in Ollama's."""

    role: str = "user"
    content: list[Part] = Field([], max_length=MOST_MESSAGES)
    images: list[str] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def parts(cls, content: Any) -> Any:
        return [{"text": content}] if isinstance(content, str) else content or []

    @property
    def pictures(self) -> list[str]:
        return [part.address for part in self.content if part.address] + (self.images or [])


class Schema(BaseModel):
    """The JSON schema that an answer is to have."""

    properties: dict[str, Any] = {}
    required: list[str] = []


class Question(BaseModel):
    """A request: chats of both protocols have messages, other requests of Ollama's a prompt.

    Ollama's requests have a format, OpenAI's the type of one and its schema.
    """

    messages: list[Message] = Field([], max_length=MOST_MESSAGES)
    prompt: str = Field("", max_length=LONGEST_PROMPT)
    images: list[str] | None = None
    stream: bool | None = None
    format: Schema | Literal["json", ""] | None = None
    format_type: str = Field("", validation_alias=AliasPath("response_format", "type"))
    format_schema: Schema | None = Field(
        None, validation_alias=AliasPath("response_format", "json_schema", "schema")
    )

    @property
    def pictures(self) -> list[str]:
        """Those of the last message that has any."""
        return next(
            (message.pictures for message in reversed(self.messages) if message.pictures),
            self.images or [],
        )

    @property
    def asks_keywords(self) -> bool:
        texts = [self.prompt]
        for message in self.messages:
            if message.role == "user":
                texts += [part.text for part in message.content]
        return any(map(ASKS_KEYWORDS.search, texts))

    @property
    def json_schema(self) -> Schema | None:
        """The schema of the JSON that is asked for; without properties if it may be any."""
        if self.format_type.startswith("json"):
            return self.format_schema or Schema()
        return Schema() if self.format == "json" else self.format or None


async def question_of(request: Request) -> Question:
    """Read the question of a request, whatever its Content-Type: curl sends that of a form."""
    body = await request.body()
    if body.count(b",") > MOST_VALUES:
        raise HTTPException(413, f"more than {MOST_VALUES:,} values; send a picture and a prompt")
    try:
        return Question.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"])) or "the request"
        raise HTTPException(422, f"{place}: {problem['msg']}") from None


def picture_of(question: Question) -> bytes:
    """Decode the picture of a question; raises HTTPException unless there is exactly one."""
    if len(question.pictures) != 1:
        count = len(question.pictures) or "no"
        raise HTTPException(422, f"{count} pictures; send one, in base64 or as a data URL")
    head, _, data = question.pictures[0].rpartition(",")
    if (head and not head.endswith(";base64")) or "://" in data[:20]:
        raise HTTPException(
            422, "addresses are never fetched; send the picture as a data URL in base64"
        )
    try:
        return binascii.a2b_base64(data)
    except ValueError as error:
        raise HTTPException(422, f"the picture is not base64 ({error})") from None


def answer_text(caption: Caption, question: Question) -> str:
    """Write what a question asks for of a caption; raises HTTPException if it cannot be had."""
    if question.asks_keywords and not caption.named:
        raise HTTPException(
            422, "this model is not calibrated for keywords; see captioning calibrate"
        )
    likely = [word for word, chance in caption.keywords.items() if chance >= KEYWORD_CHANCE]
    schema = question.json_schema
    if schema is None:
        return ", ".join(likely) if question.asks_keywords else caption.sentence
    fields: dict[str, Any] = {"caption": caption.sentence, "description": caption.sentence}
    if caption.confidence is not None:
        fields["confidence"] = rounded(caption.confidence)
    if caption.named:
        labels = [
            {"name": word, "confidence": rounded(chance), "topicality": rounded(chance)}
            for word, chance in caption.keywords.items()
        ]
        fields |= {"keywords": likely, "tags": likely, "labels": labels}
    missing = [name for name in schema.required if name not in fields]
    if missing:
        raise HTTPException(
            422, f"no {format_value(missing[0])}: this model's JSON has {', '.join(fields)}"
        )
    names = schema.properties or [name for name in fields if name not in ("description", "tags")]
    return json.dumps({name: fields[name] for name in names if name in fields})


@dataclass(frozen=True)
class AskedModel:
    """The model that programs ask.

    Attributes:
        service: captions pictures with it.
        name: by which programs choose it.
        started: since when it can be asked.
    """

    service: CaptionService
    name: str
    started: datetime

    async def answer(self, request: Request) -> tuple[Question, str]:
        """Return the question of a request, and the answer."""
        question = await question_of(request)
        caption = await self.service.caption_photo(request, picture_of(question))
        return question, answer_text(caption, question)


def protocols(service: CaptionService, name: str) -> APIRouter:
    """Return the routes of both protocols, for a model of this name."""
    router = APIRouter(include_in_schema=False)
    model = AskedModel(service, name, datetime.now(UTC))
    add_openai(router, model)
    add_ollama(router, model)
    return router


def add_openai(router: APIRouter, model: AskedModel) -> None:
    """Add the routes of OpenAI's protocol."""

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        created = int(model.started.timestamp())
        entry = {"id": model.name, "object": "model", "created": created, "owned_by": "captioning"}
        return {"object": "list", "data": [entry]}

    @router.post("/v1/chat/completions")
    async def completions(request: Request) -> Response:
        question, text = await model.answer(request)
        message = {"role": "assistant", "content": text}
        created = int(time.time())
        content = {"id": f"chatcmpl-{uuid4().hex}", "created": created, "model": model.name}
        if not question.stream:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
            content |= {"object": "chat.completion", "choices": [choice], "usage": usage}
            return JSONResponse(content)
        events = []
        for delta, reason in ((message, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            event = content | {"object": "chat.completion.chunk", "choices": [choice]}
            events.append(f"data: {json.dumps(event)}\n\n")
        return Response("".join([*events, "data: [DONE]\n\n"]), media_type="text/event-stream")


def add_ollama(router: APIRouter, model: AskedModel) -> None:
    """Add the routes of Ollama's protocol."""
    details = {"modified_at": model.started.isoformat(), "details": {"family": "captioning"}}

    @router.get("/api/tags")
    @router.get("/api/ps")
    async def tags() -> dict[str, Any]:
        names = {"name": model.name, "model": model.name, "digest": "", "size": 0}
        return {"models": [details | names]}

    @router.post("/api/show")
    async def show() -> dict[str, Any]:
        return details | {"model_info": {}, "capabilities": ["completion", "vision"]}

    @router.get("/api/version")
    async def version() -> dict[str, str]:
        return {"version": OLLAMA_VERSION}

    def ollama_answer(question: Question, key: str, content: Any, nothing: Any) -> Response:
        """Answer in lines, unless the question declines a stream, which is Ollama's default."""
        answer = {"model": model.name, "created_at": datetime.now(UTC).isoformat()}
        last = {"done": True, "done_reason": "stop"}
        if question.stream is False:
            return JSONResponse(answer | {key: content} | last)
        parts = [answer | {key: content, "done": False}, answer | {key: nothing} | last]
        stream = "".join(f"{json.dumps(part)}\n" for part in parts)
        return Response(stream, media_type="application/x-ndjson")

    @router.post("/api/generate")
    async def generate(request: Request) -> Response:
        question, text = await model.answer(request)
        return ollama_answer(question, "response", text, "")

    @router.post("/api/chat")
    async def chat(request: Request) -> Response:
        question, text = await model.answer(request)
        message = {"role": "assistant", "content": text}
        return ollama_answer(question, "message", message, message | {"content": ""})
