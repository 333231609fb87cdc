"""The session and the messages of a call's request: they start empty, and end with the call.

Hooks of the admin and middleware read ``request.session`` and send messages as on a page. A call has no browser, so it
reads what a person reads who has made no choice yet.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.contrib.messages.storage.base import BaseStorage, Message
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest


class MemoryMessages(BaseStorage):
    """Messages that live as long as the request."""

    def _get(self, *args: Any, **kwargs: Any) -> tuple[list[Message], bool]:
        return [], True

    def _store(self, messages: Sequence[Any], response: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return []


class MemorySession(SessionBase):
    """The session of a request: it starts empty and is never saved."""

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
def fresh_session(request: HttpRequest) -> Iterator[None]:
    """Take session and messages away from a call's request, which makes new ones, until the context ends."""
    state = vars(request)
    names = ("session", "_messages")
    before = {name: state.pop(name) for name in names if name in state}
    try:
        yield
    finally:
        for name in names:
            state.pop(name, None)
        state.update(before)
