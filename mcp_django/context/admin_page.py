"""A caller's request in the part of a person's: hooks of the admin get what a page of the admin would give them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from typing import Any

from django.contrib.messages.constants import DEFAULT_TAGS
from django.contrib.messages.storage.base import BaseStorage, Message
from django.contrib.sessions.backends.base import SessionBase
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from ..sensitive import without_new_secrets
from .places import PAGE_FIELDS
from .request import MCPRequest


class MemoryMessages(BaseStorage):
    """Messages that live as long as the request."""

    def _get(self, *args: Any, **kwargs: Any) -> tuple[list[Message], bool]:
        return [], True

    def _store(self, messages: Sequence[Any], response: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return []


class MemorySession(SessionBase):
    """A session that is never saved; it starts empty."""

    def exists(self, session_key: Any) -> bool:
        return False

    def create(self) -> None:
        self.modified = True

    def save(self, must_create: bool = False) -> None:
        self.modified = True

    def delete(self, session_key: Any = None) -> None:
        self.modified = True

    def load(self) -> dict[str, Any]:
        return {}

    @classmethod
    def clear_expired(cls) -> None:
        pass


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


def said(request: Any) -> list[dict[str, str]]:
    """Return the messages that an action left on its request, without markup."""
    messages = []
    for message in request._messages:
        text = str(message.message)
        if isinstance(message.message, SafeString):
            text = unescape(strip_tags(text))
        # A secret that is shown this once is for the person, in the admin.
        text = without_new_secrets(text)
        # A project may have its own words for the levels, for its style sheets.
        messages.append({"level": DEFAULT_TAGS.get(message.level, message.level_tag), "text": text})
    return messages
