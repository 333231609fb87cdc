"""Middleware around calls: ``CALL_MIDDLEWARE`` runs in the thread of a call, whose request has the token's user.

Middleware that keeps the current user for later (audit trails, ``created_by``) runs before anybody knows whom a token
belongs to, and in another thread; on the fast road it does not run at all.
"""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from inspect import isclass, isfunction, ismodule
from types import CodeType, FunctionType
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
    """A piece of work on its way through the middleware, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.is_done = False
        self.outcome: Any = None
        self.error: BaseException | None = None

    def respond(self) -> HttpResponse:
        """Do the work; middleware learns of an error as of any other view's, by the status."""
        self.is_done = True
        try:
            self.outcome = self.work()
        except BaseException as error:
            self.error = error
        return HttpResponse(status=200 if self.error is None else 500)


def load_middleware(name: str, get_response: GetResponse) -> GetResponse:
    """Return the middleware around ``get_response``, which alone comes back where the middleware is not used.

    Raises:
        ImportError: there is nothing of that name.
        ImproperlyConfigured: it cannot run in a thread.
    """
    factory = import_string(name)
    if not getattr(factory, "sync_capable", True):
        raise ImproperlyConfigured(f"{name} of CALL_MIDDLEWARE is asynchronous alone: calls run in threads.")
    try:
        made: GetResponse | None = factory(get_response)
    except MiddlewareNotUsed:
        return get_response
    if made is None:
        raise ImproperlyConfigured(f"{name} of CALL_MIDDLEWARE returned None.")
    return made


@cache
def _chain() -> GetResponse | None:
    """Return all of the middleware around the work of a request, None where there is none."""
    if not settings.CALL_MIDDLEWARE:
        return None
    chain: GetResponse = lambda request: request._mcp_run.respond()  # type: ignore[attr-defined]  # noqa: E731
    for name in reversed(settings.CALL_MIDDLEWARE):
        chain = load_middleware(name, chain)
    return chain


@cache
def _thread_places() -> tuple[threading.local, ...]:
    """Return where the middleware keeps something in its thread."""
    found = (place for name in settings.CALL_MIDDLEWARE for _, place in _keepers(import_string(name), MAX_DEPTH))
    return tuple({id(place): place for place in found if isinstance(place, threading.local)}.values())


@contextmanager
def _thread_kept() -> Iterator[None]:
    """Leave in the thread what was there: where the same middleware is around the request too, it finds its own."""
    kept = [(vars(place), vars(place).copy()) for place in _thread_places()]
    try:
        yield
    finally:
        for values, before in kept:
            values.clear()
            values.update(before)


def through(request: MCPRequest, work: Callable[[], T]) -> T:
    """Return what the work gives, done within the middleware.

    Raises:
        ToolError: the middleware answered itself, so that nothing was done.
    """
    chain = _chain()
    if chain is None:
        return work()
    run, outer = _Run(work), getattr(request, "_mcp_run", None)
    request._mcp_run = run  # type: ignore[attr-defined]
    try:
        with _thread_kept():
            response = chain(request)
    finally:
        request._mcp_run = outer  # type: ignore[attr-defined]
    if run.error is not None:
        raise run.error
    if not run.is_done:
        raise ToolError(f"Middleware of the project refused the call (HTTP {response.status_code}).")
    result: T = run.outcome
    return result


async def through_async(request: MCPRequest, work: Callable[[], Awaitable[T]]) -> T:
    """Do the same for a coroutine function: it runs on the event loop, while a thread is within the middleware.

    Synchronous parts of the work (``sync_to_async``) run in that thread.
    """
    if _chain() is None:
        return await work()

    async def working() -> T:
        return await work()

    def within() -> T:
        # The connections to the database that are opened here are closed as CONN_MAX_AGE says.
        request_started.send(sender=through)
        try:
            # asgiref would bring what the middleware leaves in context variables back to the middleware around it.
            return copy_context().run(through, request, async_to_sync(working))
        finally:
            request_finished.send(sender=through)

    return await sync_to_async(within, thread_sensitive=False)()


# Which middleware keeps the caller

# Names by which code speaks of the caller, and those that sound alike.
CALLER: Final = ("user", "actor", "request", "author", "current", "person", "owner")
OTHER: Final = {"process_request", "request_started", "request_finished", "request_id", "user_agent"}
# Whose code keeps no caller.
FOREIGN: Final = {"django", "mcp_django", "asgiref", *sys.stdlib_module_names}
STATE: Final = (threading.local, ContextVar, Local)
# Calls from function to function that are followed.
MAX_DEPTH: Final = 3


def keeps_caller(name: str) -> bool:
    """Tell whether a middleware seems to keep the request or its user, in its thread or in a context variable.

    It is read, not run: it, or what it calls, names a place of that kind, and speaks of the caller.
    """
    factory = import_string(name)
    keepers = [function for function, _ in _keepers(factory, MAX_DEPTH)]
    return bool(keepers) and any(map(_speaks_of_caller, [*keepers, *_functions(factory)]))


def _speaks_of_caller(function: FunctionType) -> bool:
    names = {name.lower() for name in _names(function.__code__)} - OTHER
    return any(word in name for name in names for word in CALLER)


def _keepers(item: Any, depth: int) -> Iterator[tuple[FunctionType, Any]]:
    """Go through the functions of a function or class, and those they use; yield those that name a place, with it."""
    for function in _functions(item):
        used = _used(function)
        held = [value for found in used if isclass(found) and not _is_foreign(found) for value in vars(found).values()]
        yield from ((function, place) for place in (*used, *held) if isinstance(place, STATE))
        if depth:
            for found in used:
                yield from _keepers(found, depth - 1)


def _functions(item: Any) -> list[FunctionType]:
    """Return the functions of a class or the function itself, none where it is Django's, Python's or this app's."""
    owners = item.__mro__ if isclass(item) else ()
    found = [value for owner in owners if not _is_foreign(owner) for value in vars(owner).values()]
    plain = [getattr(value, "__func__", value) for value in (*found, item)]
    return [value for value in plain if isfunction(value) and not _is_foreign(value)]


def _is_foreign(item: Any) -> bool:
    module = getattr(item, "__name__" if ismodule(item) else "__module__", None) or ""
    return module.split(".")[0] in FOREIGN


def _used(function: FunctionType) -> list[Any]:
    """Return what a function names, of its module and of others, and what a decorator of it wraps."""
    names = [*_names(function.__code__)]
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [item for item in found if ismodule(item) and not _is_foreign(item)]
    found += [getattr(module, name, None) for module in modules for name in names]
    return [*found, getattr(function, "__wrapped__", None)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        _chain.cache_clear()
        _thread_places.cache_clear()


setting_changed.connect(_forget)
