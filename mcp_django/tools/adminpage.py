"""A caller's request in the part of a person's: hooks of the admin get what a page of the admin would give them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from ..context import MCPRequest
from ..places import PAGE_FIELDS
from .posting import MemoryMessages, MemorySession, said

__all__ = ["as_page"]


@contextmanager
def as_page(
    request: MCPRequest,
    method: str,
    data: QueryDict | None = None,
    messages: list[dict[str, str]] | None = None,
    files: "MultiValueDict[str, Any] | None" = None,
) -> Iterator[None]:
    """Let the request be what a page of the admin gets: no query, and ``data`` and ``files`` where it posts.

    It has a session of its own, which is never stored; ``messages`` takes what hooks said to its user. While a page is
    only shown, what it has is asked of its hooks once.
    """
    now: dict[str, Any] = {
        "method": method,
        "GET": QueryDict(),
        "POST": QueryDict() if data is None else data,
        "FILES": MultiValueDict() if files is None else files,
        "session": MemorySession(),
        "_messages": MemoryMessages(request),
        PAGE_FIELDS: {} if method == "GET" else None,
    }
    before = {name: value for name, value in vars(request).items() if name in now}
    try:
        vars(request).update(now)
        yield
        if messages is not None:
            messages += said(request)
    finally:
        for name in now:
            vars(request).pop(name, None)
        vars(request).update(before)
