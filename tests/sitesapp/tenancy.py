"""The tenant of the request at work, as middleware of a project sets it."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from django.http import HttpRequest

current: ContextVar[str] = ContextVar("tenant", default="")


def tenant_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """The header `X-Tenant` names the tenant."""

    def middleware(request: HttpRequest) -> Any:
        token = current.set(request.headers.get("X-Tenant", ""))
        try:
            return get_response(request)
        finally:
            current.reset(token)

    return middleware
