"""Requests that schemathesis makes from the server's own description of its API."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

pytestmark = pytest.mark.integration

CHECKS: Any = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)

few = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (GenerationMode.NEGATIVE, {400, 413, 415, 422}),
        (GenerationMode.POSITIVE, {200, 422}),  # settings may exclude each other
    ],
)
def test_requests_are_answered_as_the_schema_says(
    server: httpx.Client, photo: bytes, mode: GenerationMode, expected: set[int]
) -> None:
    schema: Any = openapi.from_url(f"{server.base_url}/openapi.json")
    statuses = set()

    @few
    @given(schema["/caption"]["POST"].as_strategy(generation_mode=mode))
    def asked(case: Case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.body["photo"] = [photo]  # its own are random bytes
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        statuses.add(answer.status_code)

    asked()
    assert statuses <= expected
