"""Run the ``CALL_MIDDLEWARE`` setting: middleware around a call, in its thread, once the token's user is known.

Middleware in ``MIDDLEWARE`` that keeps the current user for later (audit trails, ``created_by``) runs too early, before
the token's user is known, and in another thread; on the fast road it does not run at all.
"""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import cache
from inspect import isclass, isfunction, ismodule
from types import ModuleType
from typing import Any, Final, TypeVar

from asgiref.local import Local
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.core.signals import request_finished, request_started, setting_changed
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string

from ..conf import settings
from ..exceptions import ToolError
from .request import MCPRequest

T = TypeVar("T")
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


def load_middleware(name: str, get_response: GetResponse) -> GetResponse:
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


@cache
def _chain() -> GetResponse | None:
    """Return the chain of all ``CALL_MIDDLEWARE`` around the work of a call, None without any."""
    if not settings.CALL_MIDDLEWARE:
        return None
    chain: GetResponse = lambda request: request._mcp_run.respond()  # type: ignore[attr-defined]  # noqa: E731
    for name in reversed(settings.CALL_MIDDLEWARE):
        chain = load_middleware(name, chain)
    return chain


@cache
def _thread_places() -> tuple[threading.local, ...]:
    """Return the thread-locals in which the call middleware keeps something."""
    found = (place for name in settings.CALL_MIDDLEWARE for _, place in _places(name))
    return tuple({id(place): place for place in found if isinstance(place, threading.local)}.values())


def through(request: MCPRequest, work: Callable[[], T]) -> T:
    """Run a call within the ``CALL_MIDDLEWARE`` and return the call's result."""
    chain = _chain()
    if chain is None:
        return work()
    run, outer = _Run(work), getattr(request, "_mcp_run", None)
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


async def through_async(request: MCPRequest, work: Callable[[], Awaitable[T]]) -> T:
    """Run an async call on the event loop, while a thread is within the ``CALL_MIDDLEWARE``. Synchronous parts of the
    work (``sync_to_async``) run in that thread."""
    if _chain() is None:
        return await work()

    async def working() -> T:
        return await work()

    def within() -> T:
        # The signals close this thread's database connections as CONN_MAX_AGE says.
        request_started.send(sender=through)
        try:
            # In a copied context, or asgiref would carry context variables that this middleware sets to the outer one.
            return copy_context().run(through, request, async_to_sync(working))
        finally:
            request_finished.send(sender=through)

    return await sync_to_async(within, thread_sensitive=False)()


# Detection of middleware that keeps the caller

# Parts of names that mean the caller, and names with such a part that mean something else.
CALLER: Final = ("user", "actor", "request", "author", "current", "person", "owner")
OTHER: Final = {"process_request", "request_started", "request_finished", "request_id", "user_agent"}
# Packages whose code keeps no caller.
FOREIGN: Final = {"django", "mcp_django", "asgiref", *sys.stdlib_module_names}
STATE: Final = (threading.local, ContextVar, Local)


def keeps_caller(name: str) -> bool:
    """Guess whether a middleware should run as call middleware, because it keeps the current user or request in a
    thread-local or a context variable.

    The guess is yes if its module, or one that it imports functions or classes from, has such a variable and a name
    that means the caller. The variable may hold something else, so ``CALL_MIDDLEWARE`` is what decides.
    """
    modules = {module for module, _ in _places(name)}
    named = (
        word.lower()
        for module in modules
        for word, item in vars(module).items()
        if isinstance(item, STATE) or not _is_foreign(item)
    )
    return any(word not in OTHER and any(part in word for part in CALLER) for word in named)


def _places(name: str) -> Iterator[tuple[ModuleType, Any]]:
    """Yield the thread-locals and context variables of a middleware's modules, with the module of each."""
    home = sys.modules[import_string(name).__module__]
    named = [item for item in vars(home).values() if isclass(item) or isfunction(item) or ismodule(item)]
    near = [item if ismodule(item) else sys.modules.get(item.__module__) for item in named]
    for module in {item for item in (home, *near) if item is not None and not _is_foreign(item)}:
        values = list(vars(module).values())
        held = [value for item in values if isclass(item) and not _is_foreign(item) for value in vars(item).values()]
        yield from ((module, place) for place in (*values, *held) if isinstance(place, STATE))


def _is_foreign(item: Any) -> bool:
    """Return whether an item of the middleware's module belongs to Django, Python or this app, or is a plain value."""
    owner = item if ismodule(item) or isclass(item) or isfunction(item) else type(item)
    return (owner.__name__ if ismodule(owner) else owner.__module__).partition(".")[0] in FOREIGN


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        _chain.cache_clear()
        _thread_places.cache_clear()


setting_changed.connect(_forget)
