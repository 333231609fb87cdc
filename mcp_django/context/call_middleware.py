"""Run the ``CALL_MIDDLEWARE`` setting: middleware around a call, in its thread, once the token's user is known.

Middleware in ``MIDDLEWARE`` that keeps the current user for later (audit trails, ``created_by``) runs too early, before
the token's user is known, and in another thread; on the fast road it does not run at all.
"""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from functools import cache
from inspect import isclass, isfunction, ismodule
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.core.signals import request_finished, request_started, setting_changed
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string

from ..conf import settings
from ..exceptions import CallRefused, MiddlewareFailed, ToolError
from ..runtime.failing_hooks import REFUSALS
from ..runtime.middleware_source import FOREIGN
from .request import MCPRequest

T = TypeVar("T")
# Django's middleware that reads cookies: a call has its user, its session and its messages without it.
NEEDLESS: Final = frozenset(
    {
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    }
)
GetResponse = Callable[[HttpRequest], HttpResponseBase]


class _Run:
    """The innermost view of the call middleware: runs the call and keeps its result or error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.is_done = False
        self.outcome: Any = None
        self.error: BaseException | None = None

    def respond(self) -> HttpResponse:
        """Run the call inside its middleware, which learns of an error by the status 500, as from any other view."""
        self.is_done = True
        try:
            self.outcome = self.work()
        except BaseException as error:
            self.error = error
        return HttpResponse(status=200 if self.error is None else 500)


@cache
def _chain() -> GetResponse | None:
    """Return the chain of all ``CALL_MIDDLEWARE`` around the work of a call, None without any."""
    if not settings.CALL_MIDDLEWARE:
        return None
    chain: GetResponse = lambda request: request._mcp_run.respond()  # type: ignore[attr-defined]  # noqa: E731
    for name in reversed(settings.CALL_MIDDLEWARE):
        if name not in NEEDLESS:
            chain = _named(name, CallMiddleware.load(name, chain))
    return chain


def _named(name: str, middleware: GetResponse) -> GetResponse:
    """Return call middleware whose exceptions say its name; those by which it refuses a call stay as they are."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        try:
            return middleware(request)
        except (*REFUSALS, CallRefused, MiddlewareFailed):
            raise
        except Exception as error:
            run: _Run = request._mcp_run  # type: ignore[attr-defined]
            raise MiddlewareFailed(name, run.is_done) from error

    return respond


@cache
def _thread_places() -> tuple[threading.local, ...]:
    """Return the thread-locals in which the call middleware keeps something."""
    found = (place for name in settings.CALL_MIDDLEWARE for place in _places(name))
    return tuple({id(place): place for place in found}.values())


class CallMiddleware:
    """The ``CALL_MIDDLEWARE`` around a call of this request."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    @staticmethod
    def load(name: str, get_response: GetResponse) -> GetResponse:
        """Instantiate one call middleware around ``get_response``; on MiddlewareNotUsed, return ``get_response``."""
        factory = import_string(name)
        if not getattr(factory, "sync_capable", True):
            raise ImproperlyConfigured(f"{name} of CALL_MIDDLEWARE is async only: calls run in threads.")
        try:
            made: GetResponse | None = factory(get_response)
        except MiddlewareNotUsed:
            return get_response
        if made is None:
            raise ImproperlyConfigured(f"{name} of CALL_MIDDLEWARE returned None.")
        return made

    def run(self, work: Callable[[], T]) -> T:
        """Run the call within the ``CALL_MIDDLEWARE`` and return the call's result.

        Raises:
            MiddlewareFailed: one of them failed.
            ToolError: one of them answered instead of the call.
        """
        request = self.request
        chain = _chain()
        if chain is None:
            return work()
        run = _Run(work)
        outer = getattr(request, "_mcp_run", None)
        # Restore these values afterwards, for the case that the same middleware is around the whole request too.
        kept = [(vars(place), vars(place).copy()) for place in _thread_places()]
        request._mcp_run = run  # type: ignore[attr-defined]
        try:
            response = chain(request)
        finally:
            for values, before in kept:
                values.clear()
                values.update(before)
            request._mcp_run = outer  # type: ignore[attr-defined]
        if run.error is not None:
            raise run.error
        if not run.is_done:
            raise ToolError(f"Middleware of the project refused the call (HTTP {response.status_code}).")
        result: T = run.outcome
        return result

    async def run_async(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the async call on the event loop, while a thread is within the ``CALL_MIDDLEWARE``.

        Synchronous parts of the work (``sync_to_async``) run in that thread.
        """
        if _chain() is None:
            return await work()

        async def working() -> T:
            return await work()

        def within() -> T:
            # The signals close this thread's database connections as CONN_MAX_AGE says.
            request_started.send(sender=CallMiddleware)
            try:
                # In a copied context, or asgiref would carry context variables that this middleware sets to the outer
                # one.
                return copy_context().run(self.run, async_to_sync(working))
            finally:
                request_finished.send(sender=CallMiddleware)

        return await sync_to_async(within, thread_sensitive=False)()


# The thread-locals of middleware


def _places(name: str) -> Iterator[threading.local]:
    """Yield the thread-locals of a middleware's module, and of those that it imports functions or classes from."""
    home = sys.modules[import_string(name).__module__]
    named = [item for item in vars(home).values() if isclass(item) or isfunction(item) or ismodule(item)]
    near = [item if ismodule(item) else sys.modules.get(item.__module__) for item in named]
    for module in {item for item in (home, *near) if item is not None and not _is_foreign(item)}:
        values = list(vars(module).values())
        held = [value for item in values if isclass(item) and not _is_foreign(item) for value in vars(item).values()]
        yield from (place for place in (*values, *held) if isinstance(place, threading.local))


def _is_foreign(item: Any) -> bool:
    """Return whether an item of the middleware's module belongs to Django, Python or this app, or is a plain value."""
    owner = item if ismodule(item) or isclass(item) or isfunction(item) else type(item)
    return (owner.__name__ if ismodule(owner) else owner.__module__).partition(".")[0] in FOREIGN


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        _chain.cache_clear()
        _thread_places.cache_clear()


setting_changed.connect(_forget)
