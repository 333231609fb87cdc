"""Middleware that keeps something in a context variable which has nothing to do with the user."""

from contextvars import ContextVar

from django.http import HttpRequest

_ids: ContextVar[str | None] = ContextVar("_ids", default="")


def numbered(get_response):
    """Keeps a number of the request."""

    def middleware(request: HttpRequest):
        _ids.set(request.headers.get("X-Id"))
        return get_response(request)

    return middleware
