"""Files by URL: what ``create_upload`` takes, and what links to files of records give.

A ticket in the path says who asked for it and for what. It is no proof that they may still have it: the user, their
token and their permissions are looked up again. These are plain Django views, below the endpoint on either road.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser
from django.core.files.base import File
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, re_path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from ..addresses import Address
from ..conf import settings
from ..context import MCPRequest
from ..costs import read_limits
from ..exceptions import NotFound, ToolError
from ..oauth.bearer import Token
from ..oauth.resource import resource_url
from ..oauth.scopes import READ, WRITE, expand
from ..protocol.http import body_length
from ..rates import caller_of, hit
from ..resources.files import DOWNLOADS, file_type, find_file, open_file
from ..sites import MCPSite
from ..tickets import MAX_AGE, TICKET, Ticket, read_ticket
from ..tools.uploads import UPLOADS, CreateUpload
from ..uploads import upload_storage
from .limits import LimitExceeded, count_call
from .request import build_request, headers_of, middleware_attributes, scope_from_wsgi

__all__ = ["file_urls"]

CHUNK: Final = 64 * 1024
SPOOL: Final = 1024 * 1024
HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Refused(Exception):
    """The answer is this one."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def file_urls(site: MCPSite) -> list[URLPattern]:
    """Return the patterns of the site's URLs of files, relative to where its endpoint is mounted."""
    return [
        re_path(rf"^(?:/)?{UPLOADS}/(?P<ticket>{TICKET})$", _view(site, "PUT", _take), name="upload"),
        re_path(rf"^(?:/)?{DOWNLOADS}/(?P<ticket>{TICKET})$", _view(site, "GET", _give), name="file"),
    ]


def _view(
    site: MCPSite, method: str, answer: Callable[[HttpRequest, MCPSite, str], HttpResponseBase]
) -> Callable[..., HttpResponseBase]:
    @csrf_exempt
    @login_not_required
    @require_http_methods([method])
    def view(request: HttpRequest, ticket: str, **kwargs: Any) -> HttpResponseBase:
        request.get_host()
        try:
            response = answer(request, site, ticket)
        except NotFound:
            response = _said(404, "There is nothing here, or no more.")
        except LimitExceeded as limit:
            response = _said(429, "Too many calls.", **{"Retry-After": str(limit.retry_after)})
        except _Refused as refused:
            response = _said(refused.status, refused.text)
        except ToolError as error:
            # The database took too long, or was asked to do too much.
            response = _said(503, error.message)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return view


def _said(status: int, text: str, **headers: str) -> HttpResponse:
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


# Who


def _as_caller(original: HttpRequest, site: MCPSite, use: str, text: str, scope: str) -> tuple[MCPRequest, Ticket]:
    """Return the request of the user who asked for the ticket, as hooks get it, counted as one of their calls.

    Raises:
        NotFound: the ticket is not good, or no more.
        LimitExceeded: the user has to wait.
    """
    ticket = read_ticket(site.name, use, text)
    user = None if ticket is None else _user_of(ticket)
    scopes = expand([scope])
    if ticket is None or user is None or not _is_live(ticket, scopes):
        raise NotFound
    facts = scope_from_wsgi(original)
    request = build_request(facts, headers_of(facts), site)
    request.META.pop("HTTP_AUTHORIZATION", None)
    request.__dict__.update(middleware_attributes(original))
    request.user = user
    request.mcp.scopes = scopes
    request.mcp.resource = resource_url(request, original.path.rpartition(f"/{use}/")[0])
    count_call(caller_of(request))
    return request, ticket


def _user_of(ticket: Ticket) -> Any:
    if ticket.owner is None:
        return None if settings.AUTHENTICATION_CLASSES else AnonymousUser()
    user = get_user_model()._default_manager.filter(pk=ticket.owner).first()
    return user if user is not None and user.is_active else None


def _is_live(ticket: Ticket, scopes: frozenset[str]) -> bool:
    """Return whether the token that the ticket was asked for with is still good."""
    if not ticket.checksum:
        return True
    later = timezone.now() + timedelta(seconds=MAX_AGE)
    return bool(Token.still_good([Token(scopes, "", later, ticket.checksum)]))


# What


def _take(original: HttpRequest, site: MCPSite, text: str) -> HttpResponseBase:
    """Keep the body under the name in the ticket, once."""
    try:
        announced = body_length(original.META.get("CONTENT_LENGTH") or None)
    except ValueError:
        raise _Refused(400, "Content-Length is not a number.") from None
    if announced is not None and announced > settings.MAX_UPLOAD_BYTES:
        raise _too_large()
    request, ticket = _as_caller(original, site, UPLOADS, text, WRITE)
    storage, (name,) = upload_storage(), ticket.about
    if storage is None or not CreateUpload().has_permission(request):
        raise NotFound
    if storage.exists(name):
        raise _Refused(409, "A file was sent here before. Ask for another URL.")
    if (wait := hit("uploads", caller_of(request), settings.UPLOAD_RATE)) is not None:
        raise LimitExceeded(wait)
    with tempfile.SpooledTemporaryFile(SPOOL) as body:
        size = _receive(original, body)
        if announced is not None and announced != size:
            raise _Refused(400, "The body is shorter than announced.")
        body.seek(0)
        kept = storage.save(name, File(body, name))
    if kept != name:
        # Another one was faster.
        storage.delete(kept)
        raise _Refused(409, "A file was sent here before. Ask for another URL.")
    return _said(201, f"Received {size} bytes.")


def _receive(original: HttpRequest, body: Any) -> int:
    """Copy the body of the request, within its bound, and return its length."""
    size = 0
    while data := original.read(CHUNK):
        size += len(data)
        if size > settings.MAX_UPLOAD_BYTES:
            raise _too_large()
        body.write(data)
    return size


def _too_large() -> _Refused:
    return _Refused(413, f"The file has more than {settings.MAX_UPLOAD_BYTES} bytes.")


def _give(original: HttpRequest, site: MCPSite, text: str) -> HttpResponseBase:
    """Send the file that the ticket names, as one to save."""
    request, ticket = _as_caller(original, site, DOWNLOADS, text, READ)
    if not settings.DOWNLOAD_LINKS:
        raise NotFound
    label, pk, field_name = ticket.about
    with read_limits():
        file = find_file(request, Address(label, pk=pk, field_name=field_name))
    name = os.path.basename(file.name or "")
    stream = open_file(file)
    response = FileResponse(stream, as_attachment=True, filename=name, content_type=file_type(name))
    if isinstance(original, ASGIRequest):
        # Django would read the whole of it before it sends any.
        response.streaming_content = _chunks(stream)
    # GZipMiddleware would drop the length.
    response["Content-Encoding"] = "identity"
    return response


async def _chunks(stream: Any) -> AsyncIterator[bytes]:
    while data := await sync_to_async(stream.read, thread_sensitive=False)(CHUNK):
        yield data
