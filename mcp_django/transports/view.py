"""The plain road: the consumer inside Django's own handler, mounted by ``urls.py``.

Django has checked, routed and run its middleware by then; the consumer gets the body Django has read and its messages
become Django responses. Under WSGI the same exchange runs in the calling thread, without streams.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from ..conf import settings
from ..methods.base import Later
from ..protocol.http import Response
from ..sites import MCPSite
from . import legacy_sse
from .dispatch import Batched, Pending, conclude, run_batch
from .exchange import Exchange
from .files import file_urls
from .http import as_application
from .request import middleware_attributes, scope_from_wsgi

__all__ = ["endpoint", "file_urls", "sse_endpoint"]


def endpoint(site: MCPSite) -> Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Return the view of a site's endpoint. Its ``mcp_site`` is how the fast road finds it."""

    async def view(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
        attributes = hook_attributes(request)
        if isinstance(request, ASGIRequest):
            return await run_consumer(as_application(site, attributes), request)
        return await sync_to_async(answer_wsgi)(site, request, attributes)

    view.mcp_site = site  # type: ignore[attr-defined]
    return _exempt(view)


def sse_endpoint(site: MCPSite) -> Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Return the view of a site's mount for HTTP with SSE, which a WSGI server cannot serve."""

    async def view(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
        if isinstance(request, ASGIRequest):
            return await run_consumer(legacy_sse.as_application(site, hook_attributes(request)), request)
        return HttpResponse("This server cannot stream.", status=405, content_type="text/plain")

    view.mcp_sse_site = site  # type: ignore[attr-defined]
    return _exempt(view)


def _exempt(view: Callable[[HttpRequest], Awaitable[HttpResponseBase]]) -> Any:
    """Return the view without what the middleware and ``ATOMIC_REQUESTS`` do to views: an async one is not atomic."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return csrf_exempt(login_not_required(view))


def hook_attributes(request: HttpRequest) -> Mapping[str, Any]:
    """Return what hooks find on their request beside its own: what middleware added, and the match of its URL."""
    return {**middleware_attributes(request), "resolver_match": request.resolver_match}


# Consumers at work: the event loop itself holds tasks weakly.
_running: set["asyncio.Future[None]"] = set()


async def run_consumer(application: Any, request: ASGIRequest) -> HttpResponseBase:
    """Run a consumer on the request that Django has read; the body it gets is bounded as on the fast road."""
    limit = settings.MAX_BODY_BYTES + 1
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": request.read(limit), "more_body": False})
    outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(message: dict[str, Any]) -> None:
        outgoing.put_nowait(message)

    def leave() -> None:
        # Django cancels the view when the client goes; what that means for the call is the consumer's to decide.
        incoming.put_nowait({"type": "http.disconnect"})

    task = asyncio.ensure_future(application(request.scope, incoming.get, send))
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda _: outgoing.put_nowait({"type": "done"}))
    try:
        start = await outgoing.get()
        if start["type"] == "done":
            await task
            return HttpResponse(status=499)
        first = await outgoing.get()
    except asyncio.CancelledError:
        leave()
        raise
    if not first.get("more_body", False):
        return _copy_headers(HttpResponse(first["body"], status=start["status"]), start)
    stream = StreamingHttpResponse(_chunks(first, outgoing, leave), status=start["status"])
    # GZipMiddleware would hold events back; it leaves alone what is encoded already.
    stream["Content-Encoding"] = "identity"
    return _copy_headers(stream, start)


async def _chunks(
    first: dict[str, Any], outgoing: "asyncio.Queue[dict[str, Any]]", leave: Callable[[], None]
) -> AsyncIterator[bytes]:
    try:
        message = first
        while message["type"] == "http.response.body":
            yield message["body"]
            if not message.get("more_body", False):
                return
            message = await outgoing.get()
    finally:
        leave()


def _copy_headers(response: Any, start: Mapping[str, Any]) -> Any:
    del response["Content-Type"]
    for name, value in start["headers"]:
        response[name.decode("latin1").title()] = value.decode("latin1")
    return response


def answer_wsgi(site: MCPSite, request: HttpRequest, attributes: Mapping[str, Any]) -> HttpResponse:
    """Answer in the calling thread."""
    exchange = Exchange(site, scope_from_wsgi(request), attributes, can_stream=False)
    try:
        response = exchange.front_door()
        if response is None:
            body = request.read(settings.MAX_BODY_BYTES + 1)
            response = exchange.too_large() if len(body) > settings.MAX_BODY_BYTES else _whole(exchange, body)
    finally:
        exchange.close()
    plain = HttpResponse(response.body, status=response.status)
    del plain["Content-Type"]
    for name, value in response.header_list():
        plain[name] = value
    return plain


def _whole(exchange: Exchange, body: bytes) -> Response:
    outcome = exchange.answer(body)
    if isinstance(outcome, Pending):
        call, later = outcome.call, outcome.work
        assert isinstance(later, Later)
        outcome = exchange.guarded(lambda: exchange.respond(conclude(exchange, call, later)))
    elif isinstance(outcome, Batched):
        batch = outcome.batch
        found = exchange.guarded(lambda: run_batch(exchange, batch))
        outcome = found if isinstance(found, Response) else found[0]
    # Whatever needs a stream was refused before.
    assert isinstance(outcome, Response)
    return outcome
