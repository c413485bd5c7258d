"""Parses forms with a photo: in memory, and with few parts."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.formparsers import MultiPartParser

MOST_SETTINGS = 20
"""Fields of a form besides the photo, unknown ones included."""

# The gate holds the whole body in memory anyway. A temporary file would take a file descriptor,
# and connections leave few of them.
MultiPartParser.spool_max_size = sys.maxsize


class UploadRoute(APIRoute):
    """A route whose form has one file and a few fields; more is an error."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a request."""
        answer = super().get_route_handler()

        async def answer_upload(request: Request) -> Response:
            return await answer(_UploadRequest(request.scope, request.receive))

        return answer_upload


class _UploadRequest(Request):
    def form(self, **_: Any) -> Any:  # Starlette's type of it cannot be checked at run time
        return super().form(max_files=1, max_fields=MOST_SETTINGS)
