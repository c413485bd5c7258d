"""Requests that schemathesis makes from the server's own description of its API."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

pytestmark = pytest.mark.integration

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
        ("NEGATIVE", {400, 413, 415, 422}),
        ("POSITIVE", {200, 422}),  # settings may exclude each other
    ],
)
def test_requests_are_answered_as_the_schema_says(
    server: httpx.Client, photo: bytes, mode: str, expected: set[int]
) -> None:
    from schemathesis import GenerationMode, openapi  # takes a second to import
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    conformance: Any = (
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    )
    schema: Any = openapi.from_url(f"{server.base_url}/openapi.json")
    statuses = set()

    @few
    @given(schema["/caption"]["POST"].as_strategy(generation_mode=GenerationMode[mode]))
    def asked(case: Any) -> None:
        if mode == "POSITIVE":
            case.body["photo"] = [photo]  # its own are random bytes
        answer = case.call()
        case.validate_response(answer, checks=conformance)
        statuses.add(answer.status_code)

    asked()
    assert statuses <= expected
