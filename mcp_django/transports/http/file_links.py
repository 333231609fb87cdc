"""Links to files: the upload URLs that ``create_upload`` returns, and the download URLs of records' files.

They lead to plain Django views below the endpoint, on either road, and have a ticket in their path. A ticket does not
prove that its user is still allowed to use it: each request checks the user and their token again.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser
from django.core.files.base import File
from django.core.handlers.asgi import ASGIRequest
from django.db import Error as DatabaseError
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt

from ...conf import settings
from ...context.database_errors import Trouble
from ...context.refused_request_log import report
from ...context.request import MCPRequest, middleware_attributes, read_scope, scope_from_wsgi
from ...context.tickets import Ticket
from ...emulation.uploads import Upload
from ...exceptions import AuthenticationFailed, CallRefused, NotFound, ToolError
from ...oauth.bearer import ProtectedResource
from ...operating import switches
from ...operating.recorded_calls import RecordedCall
from ...orm.query_limits import read_limits
from ...orm.uris import ParsedURI
from ...problems import Problem
from ...protocol.headers import RequestHeaders
from ...resources.model_resources import RowFile
from ...runtime.cache_and_rate_limits import Caller, LimitExceeded, RateLimit
from ...scopes import Scope, expand
from ...server.methods.handler_interface import log_failure
from ...sites import MCPSite
from ...tools.create_upload import CreateUpload
from .file_streams import CHUNK, OpenFile
from .http_exchange import RETRY_AFTER, Refused

NOTHING: Final = "There is nothing here, or no longer."
# Seconds for which an expired link is still recognised, so that the log can say that it is too old.
LONG_AGO: Final = 30 * 24 * 3600
# Reasons why a link does not work; only the log may tell them.
TOO_OLD: Final = Problem(f"it is older than {Ticket.MAX_AGE // 60} minutes", "The client has to ask for another one.")
NOT_MADE_HERE: Final = Problem(
    "it was not made here", "Do all workers, those before a deployment too, share SECRET_KEY or its fallbacks?"
)
NO_USER: Final = Problem("its user is gone or not active", "Activate the user if they should have access.")
TOKEN_ENDED: Final = Problem(
    "the token that it was made with has ended", "The client has to sign in again and ask for another link."
)
TAKEN_AWAY: Final = Problem(
    "its record or file is gone, its user lost the permission, or a setting turned such links off",
    "If the user should have it, mcp_inspect --user shows what they see.",
)
SWITCHED_OFF: Final = "mcp_switch --list shows what is off, and since when."
WRONG_METHOD: Final = "The description of the tool that gives the link says which method it takes."
HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest, MCPRequest, tuple[str, ...]], HttpResponseBase]


def ticketed(site: MCPSite, use: str, method: str, scope: str, answer: Answer) -> Callable[..., HttpResponseBase]:
    """Return the view of a link, which checks the ticket in its URL.

    ``answer`` gets Django's request, an ``MCPRequest`` of the user who got the ticket, and the ticket's ``about``.
    It may raise :class:`Refused`, ``NotFound``, ``LimitExceeded`` and ``ToolError``.
    """

    @csrf_exempt
    @login_not_required
    def view(request: HttpRequest, ticket: str, **kwargs: Any) -> HttpResponseBase:
        request.get_host()
        try:
            if request.method != method:
                text = f"Use {method}."
                raise Refused(405, text, WRONG_METHOD, {"Allow": method}, seen=f"{request.method}: {text}")
            response = answer(request, *_as_caller(request, site, use, ticket, scope))
        except (NotFound, LimitExceeded, Refused, ToolError, CallRefused) as error:
            match error:
                case Refused():
                    refusal = error
                case LimitExceeded():
                    refusal = Refused(429, "Too many calls.", error.remedy, {"Retry-After": str(error.retry_after)})
                case CallRefused():
                    refusal = Refused(403, error.message, SWITCHED_OFF)
                case ToolError():
                    # A query took too long or was too expensive.
                    refusal = Refused(503, error.message, "STATEMENT_TIMEOUT limits what a read costs.")
                case _:
                    refusal = _gone(TAKEN_AWAY)
            # Do not log the ticket: anyone who reads the log could use it.
            report(refusal.status, f"a link to {use}: {refusal.seen}", refusal.remedy)
            response = said(refusal.status, refusal.text, **refusal.headers)
        except DatabaseError as error:
            response = _unavailable(error)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return view


def _unavailable(error: DatabaseError) -> HttpResponse:
    """Return the answer to a link while the database is away, busy or full; raise any other error again."""
    trouble = Trouble.of(error)
    if trouble is None:
        raise error
    identifier = log_failure("A link", error)
    text = f"This does not work at the moment: {trouble.cause} (error {identifier}). Use the same link again soon."
    return said(503, text, **RETRY_AFTER)


def _gone(reason: Problem) -> Refused:
    return Refused(404, NOTHING, reason.remedy, seen=reason.what)


def said(status: int, text: str, **headers: str) -> HttpResponse:
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


def _as_caller(
    original: HttpRequest, site: MCPSite, use: str, text: str, scope: str
) -> tuple[MCPRequest, tuple[str, ...]]:
    """Return a request of the user who got the link, counted as a call, and the ticket's ``about``."""
    ticket = Ticket.read(site.name, use, text)
    scopes = expand([scope])
    if ticket is None:
        is_old = Ticket.read(site.name, use, text, max_age=LONG_AGO) is not None
        raise _gone(TOO_OLD if is_old else NOT_MADE_HERE)
    user: Any = get_user_model()._default_manager.filter(pk=ticket.owner).first() if ticket.owner is not None else None
    if ticket.owner is None and not settings.AUTHENTICATION_CLASSES:
        user = AnonymousUser()
    elif user is None or not user.is_active:
        raise _gone(NO_USER)
    request, _ = read_scope(scope_from_wsgi(original), site)
    request.META.pop("HTTP_AUTHORIZATION", None)
    request.__dict__.update(middleware_attributes(original))
    try:
        ProtectedResource(request, original.path_info.rpartition(f"/{use}/")[0]).resume(user, scopes, ticket.checksum)
    except AuthenticationFailed:
        raise _gone(TOKEN_ENDED) from None
    context = request.mcp
    Caller.of(request).count_call()
    off = switches.board.current()
    context.off = off
    if off is not None:
        recorded = RecordedCall(request)
        recorded.describe_caller()
        recorded.refuse_if_off()
        if scope == Scope.WRITE and off.writes is not None:
            raise off.writes.refusal()
    return request, ticket.about


SPOOL: Final = 1024 * 1024
NOT_KEPT: Final = "The server could not keep the file. You can send it again to the same URL."
TAKEN: Final = "A file was sent here before. Ask for another URL."
ASK_ANEW: Final = "A URL takes one file; the client has to call create_upload for each."
CUT: Final = "The client or a proxy ended the connection; the proxy may limit bodies or their time."
BREAKS_HTTP: Final = "The client or a proxy violates HTTP."


def file_urls(site: MCPSite) -> list[URLPattern]:
    """Return the URL patterns of upload and download links, relative to the site's endpoint."""
    take = ticketed(site, CreateUpload.PURPOSE, "PUT", Scope.WRITE, _take)
    give = ticketed(site, ParsedURI.DOWNLOADS, "GET", Scope.READ, _give)
    return [
        re_path(rf"^(?:/)?{CreateUpload.PURPOSE}/(?P<ticket>{Ticket.PATTERN})$", take, name="upload"),
        re_path(rf"^(?:/)?{ParsedURI.DOWNLOADS}/(?P<ticket>{Ticket.PATTERN})$", give, name="file"),
    ]


def _take(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponseBase:
    storage = Upload.storage()
    (name,) = about
    upload = Upload(name)
    if storage is None or not CreateUpload().has_permission(request):
        raise NotFound
    try:
        announced = RequestHeaders.body_length(original.META.get("CONTENT_LENGTH") or None)
    except ValueError:
        raise Refused(400, "Content-Length is not a number.", BREAKS_HTTP) from None
    if announced is None and not isinstance(original, ASGIRequest):
        # Under WSGI, only the length tells where the body ends.
        remedy = "Under WSGI a client must announce the length; an ASGI server needs none."
        raise Refused(411, "Content-Length is missing.", remedy)
    if announced is not None and announced > settings.MAX_FILE_BYTES:
        raise _too_large()
    if upload.was_sent or storage.exists(name):
        raise Refused(409, TAKEN, ASK_ANEW)
    try:
        wait = RateLimit("uploads", settings.RATES["uploads"]).hit(Caller.of(request))
    except Exception as error:
        text = "The server cannot take files at the moment. Send it again in a few seconds."
        problem = f"the cache does not count them: {type(error).__name__}"
        raise Refused(503, text, "Without the cache no file is taken.", seen=problem) from None
    if wait is not None:
        raise LimitExceeded("Raise RATES['uploads'] if clients have to send more.", wait)
    try:
        with tempfile.SpooledTemporaryFile(SPOOL) as body:
            size = _receive(original, body, announced)
            stored_name = storage.save(name, File(body, name))
    except Refused:
        raise
    except Exception as error:
        # A full disk or any error of the storage: delete the partial file, so that the URL can be used again.
        identifier = log_failure("An upload", error)
        with contextlib.suppress(Exception):
            storage.delete(name)
        text = f"{NOT_KEPT} (error {identifier})"
        raise Refused(507, text, "The error of that number, logged before this, says why the storage failed.") from None
    if stored_name != name:
        # Another upload to this URL was faster, so the storage chose a different name.
        storage.delete(stored_name)
        raise Refused(409, TAKEN, ASK_ANEW)
    upload.remember()
    return said(201, f"Received {size} bytes.")


def _too_large() -> Refused:
    text = f"The file has more than {settings.MAX_FILE_BYTES} bytes."
    return Refused(413, text, "Raise MAX_FILE_BYTES if clients have to send more.")


def _receive(original: HttpRequest, body: Any, announced: int | None) -> int:
    size = 0
    try:
        while data := original.read(CHUNK):
            size += len(data)
            if size > settings.MAX_FILE_BYTES:
                raise _too_large()
            body.write(data)
    except UnreadablePostError:
        raise Refused(400, "The body did not arrive.", CUT) from None
    if announced is not None and announced != size:
        raise Refused(400, "The body is shorter than announced.", CUT)
    body.seek(0)
    return size


def _give(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponseBase:
    with read_limits():
        row_file = RowFile(request, ParsedURI(about[0], pk=about[1], field_name=about[2]))
    name = os.path.basename(row_file.file.name or "")
    stream = row_file.open()
    response = FileResponse(stream, as_attachment=True, filename=name, content_type=row_file.type)
    length = response.get("Content-Length")
    OpenFile(stream, int(length) if length else None, "A download").send_as(response, original)
    # GZipMiddleware would remove Content-Length.
    response["Content-Encoding"] = "identity"
    return response
