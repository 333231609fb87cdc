"""Django views of the endpoint (the plain road): they run the ASGI consumer inside Django's own handler.

Django has already routed the request and run its middleware. The consumer gets the body that Django has read, and its
messages become Django responses. Under WSGI the same exchange runs in the calling thread, without streams.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt

from ...conf import settings
from ...context.request import middleware_attributes, scope_from_wsgi
from ...oauth.well_known_metadata import card_view
from ...runtime.thread_pools import Handover
from ...sites import MCPSite
from ..server_card import card
from . import http_with_sse
from .asgi_consumer import LARGE, WRITE_TIMEOUT, cut_off
from .confirmation_page import confirmation_urls
from .export_page import export_urls
from .file_links import file_urls
from .http_exchange import DJANGOS_REQUEST, Response
from .stream_registry import registry
from .streamable_http import StreamableExchange, as_application


def url_patterns(site: MCPSite, *, sse: bool = False) -> list[URLPattern]:
    """Return the URL patterns of an endpoint, or of HTTP with SSE, relative to the mount."""
    more = [*file_urls(site), *confirmation_urls(site), *export_urls(site)]
    if sse:
        return [re_path(r"^(?:/messages|/)?$", sse_endpoint(site), name="sse"), *more]  # type: ignore[arg-type]
    return [
        re_path(r"^(?:/)?$", endpoint(site), name="endpoint"),  # type: ignore[arg-type]
        re_path(r"^(?:/)?server-card/?$", card_view(card), name="card"),
        *more,
    ]


def endpoint(site: MCPSite) -> Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Return the view that answers requests to a site's endpoint; its attribute ``mcp_site`` is the site."""

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
            return await run_consumer(http_with_sse.as_application(site, hook_attributes(request)), request)
        return HttpResponse("This server cannot stream.", status=405, content_type="text/plain")

    view.mcp_sse_site = site  # type: ignore[attr-defined]
    return _exempt(view)


def _exempt(view: Callable[[HttpRequest], Awaitable[HttpResponseBase]]) -> Any:
    """Return the view, exempt from CSRF checks, login middleware and ``ATOMIC_REQUESTS``."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return csrf_exempt(login_not_required(view))


def hook_attributes(request: HttpRequest) -> Mapping[str, Any]:
    """Return what hooks get of Django's request: attributes that middleware set, and the URL match."""
    return {**middleware_attributes(request), "resolver_match": request.resolver_match}


# Bytes of a request body that the consumer receives at once.
CHUNK: Final = 64 * 1024
# The status of a response that no client is left to read.
GONE: Final = 499


async def run_consumer(application: Any, request: ASGIRequest) -> HttpResponseBase:
    """Run an ASGI application inside the view, and return its messages as a Django response."""
    outgoing = Outgoing()
    has_left = asyncio.Event()
    is_read = False

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if is_read or has_left.is_set():
            await has_left.wait()
            return {"type": "http.disconnect"}
        chunk = request.read(CHUNK)
        is_read = len(chunk) < CHUNK
        return {"type": "http.request", "body": chunk, "more_body": not is_read}

    def leave() -> None:
        # Django cancels the view when the client disconnects; the consumer decides what that means for the call.
        has_left.set()
        outgoing.open()

    task = asyncio.ensure_future(application({**request.scope, DJANGOS_REQUEST: request}, receive, outgoing.put))
    registry.keep(task)
    task.add_done_callback(lambda _: outgoing.end())
    try:
        start, body, more = await _begin(outgoing)
        if start["status"] == GONE:
            await task
    except asyncio.CancelledError:
        leave()
        raise
    if not more:
        return _copy_headers(HttpResponse(body, status=start["status"]), start)
    stream = StreamingHttpResponse(_chunks(body, outgoing, leave, request.scope.get("client")), status=start["status"])
    # GZipMiddleware would delay events and compress each piece by itself. It skips responses that are encoded already.
    stream["Content-Encoding"] = "identity"
    return _copy_headers(stream, start)


async def _begin(outgoing: "Outgoing") -> tuple[Mapping[str, Any], bytes, bool]:
    """Return the head of the response, its body or the beginning of it, and whether more follows.

    A consumer that ends without a response has no client left to answer: the status is ``GONE``.
    """
    start = await outgoing.get()
    message = start
    is_answer = any(name.lower() == b"content-length" for name, _ in start.get("headers", ()))
    body = b""
    while message["type"] != "done":
        message = await outgoing.get()
        body = body + message.get("body", b"")
        more = message.get("more_body", False)
        if message["type"] != "done" and (not (more and is_answer) or len(body) > LARGE):
            return start, body, more
    return {"status": GONE, "headers": ()}, b"", False


class Outgoing:
    """Queue of the messages from the consumer to the view; one message waits at a time."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)
        self._is_open = False

    async def put(self, message: dict[str, Any]) -> None:
        """Queue a message for the view, once it has taken the one before."""
        if not self._is_open:
            await self._room.acquire()
        self._messages.put_nowait(message)

    async def get(self) -> dict[str, Any]:
        message = await self._messages.get()
        self._room.release()
        return message

    def open(self) -> None:
        """Let messages no longer wait for the view to take them, because the view sends no more."""
        self._is_open = True
        self._room.release()

    def end(self) -> None:
        self._messages.put_nowait({"type": "done"})


async def _chunks(
    body: bytes, outgoing: Outgoing, leave: Callable[[], None], client: Sequence[Any] | None
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    handler = asyncio.current_task()
    more = True

    def cut() -> None:
        if not cut_off(client) and handler is not None:
            handler.cancel()

    try:
        while True:
            # Django itself waits forever for a client that does not read.
            limit = loop.call_later(WRITE_TIMEOUT, cut)
            try:
                yield body
            finally:
                limit.cancel()
            if not more:
                return
            message = await outgoing.get()
            if message["type"] != "http.response.body":
                # The client was disconnected. Do not end the stream, which would make the response look complete: the
                # server tells Django, which cancels this generator.
                await asyncio.sleep(WRITE_TIMEOUT)
                return
            body = message.get("body", b"")
            more = message.get("more_body", False)
    finally:
        leave()


def _copy_headers(response: Any, start: Mapping[str, Any]) -> Any:
    del response["Content-Type"]
    for name, value in start["headers"]:
        response[name.decode("latin1").title()] = value.decode("latin1")
    return response


def answer_wsgi(site: MCPSite, request: HttpRequest, attributes: Mapping[str, Any]) -> HttpResponse:
    scope = {**scope_from_wsgi(request), DJANGOS_REQUEST: request}
    exchange = StreamableExchange(site, scope, attributes, can_stream=False)
    try:
        outcome: Any = exchange.guarded(exchange.front_door)
        if outcome is None:
            body = request.read(settings.MAX_BODY_BYTES + 1)
            if len(body) > settings.MAX_BODY_BYTES:
                outcome = exchange.failed(exchange.too_large())
            else:
                outcome = exchange.answer(body)
                while isinstance(outcome, Handover):
                    outcome = outcome.work()
        # The exchange has already refused everything that needs a stream.
        response: Response = outcome if isinstance(outcome, Response) else outcome.in_this_thread()
    finally:
        exchange.close()
    plain = HttpResponse(response.body, status=response.status)
    del plain["Content-Type"]
    for name, value in response.header_list():
        plain[name] = value
    return plain
