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

from tests.serving.conftest import Serve

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


@pytest.fixture
def client(serve: Serve) -> httpx.Client:
    return serve()


@pytest.fixture
def schema(client: httpx.Client) -> Any:
    """The description of the API."""
    return openapi.from_url(f"{client.base_url}/openapi.json")


def test_requests_that_the_schema_forbids_are_refused_as_it_says(schema: Any) -> None:
    requests = schema["/caption"]["POST"].as_strategy(generation_mode=GenerationMode.NEGATIVE)
    statuses = set()

    @few
    @given(requests)
    def refused(case: Case) -> None:
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        statuses.add(answer.status_code)

    refused()
    assert statuses <= {400, 413, 415, 422}


def test_requests_that_the_schema_allows_are_answered_as_it_says(schema: Any, photo: bytes) -> None:
    requests = schema["/caption"]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE)
    statuses = set()

    @few
    @given(requests)
    def answered(case: Case) -> None:
        case.body["photo"] = photo  # its own are random bytes
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        statuses.add(answer.status_code)

    answered()
    assert statuses <= {200, 422}  # settings may exclude each other, which no schema says
