"""Files by URL: what ``create_upload`` takes, and what links to files of records give.

They are plain views of Django below the endpoint, on either road, that a ticket in the path opens. It is no proof that
its user may still have what it is for: the user and their token are looked up again.
"""

import contextlib
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
from django.core.files.storage import Storage
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.urls import URLPattern, re_path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from ...conf import settings
from ...context.asgi_request import build_request, headers_of, middleware_attributes, scope_from_wsgi
from ...context.refusals import report
from ...context.request import MCPRequest
from ...context.signing import MAX_AGE, TICKET, Ticket, read_ticket
from ...exceptions import CallRefused, NotFound, Reason, ToolError
from ...forms.uploads import remember_sent, upload_storage, was_sent
from ...oauth.bearer import Token
from ...oauth.facts import facts_of
from ...oauth.resource import resource_url
from ...oauth.scopes import expand
from ...operating import switches
from ...operating.calls import describe_caller, refuse_if_off
from ...orm.query_limits import read_limits
from ...orm.uris import DOWNLOADS, Address
from ...protocol.http import body_length
from ...resources.files import file_type, find_file, open_file
from ...runtime.throttling import caller_of, hit
from ...scopes import READ, WRITE
from ...server.methods.base import log_failure
from ...signin import is_current, restore
from ...sites import MCPSite
from ...tools.uploads import UPLOADS, CreateUpload
from .limits import LimitExceeded, count_call

NOTHING: Final = "There is nothing here, or no more."
# Seconds; a link that old has a cause of its own.
LONG_AGO: Final = 30 * 24 * 3600
# Why a link is good for nothing, which only the log may say.
TOO_OLD: Final = Reason(f"it is older than {MAX_AGE // 60} minutes", "The client asks for another one.")
NOT_MADE_HERE: Final = Reason(
    "it was not made here", "Do all workers, those before a deployment too, share SECRET_KEY or its fallbacks?"
)
NO_USER: Final = Reason("its user is gone or not active", "Activate the user, or leave it so.")
TOKEN_ENDED: Final = Reason(
    "the token that it was made with has ended", "The client signs in again and asks for another link."
)
TAKEN_AWAY: Final = Reason(
    "its record or file is gone, its user lost the permission, or a setting turned such links off",
    "If the user should have it, mcp_inspect --user says what they see.",
)
SWITCHED_OFF: Final = "mcp_switch --list says what is off, and since when."
WRONG_METHOD: Final = "The description of the tool that gives the link says which method it takes."
HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest, MCPRequest, tuple[str, ...]], HttpResponseBase]


class Refused(Exception):
    """The answer has this status and text; the log gets ``seen``, or else the text, and ``remedy``.

    ``remedy`` is one fixed text for each cause.
    """

    def __init__(self, status: int, text: str, remedy: str, *, seen: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status, self.text, self.remedy = status, text, remedy
        self.seen, self.headers = seen or text, headers


def ticketed(site: MCPSite, use: str, method: str, scope: str, answer: Answer) -> Callable[..., HttpResponseBase]:
    """Return the view that answers a request with a ticket of the site for this use.

    ``answer`` gets Django's request, that of the user who asked for the ticket as hooks get it, and what it is about.
    It may raise :class:`Refused`, ``NotFound``, ``LimitExceeded`` and ``ToolError``.
    """

    @csrf_exempt
    @login_not_required
    def view(request: HttpRequest, ticket: str, **kwargs: Any) -> HttpResponseBase:
        request.get_host()
        try:
            if request.method != method:
                text = f"Use {method}."
                raise Refused(405, text, WRONG_METHOD, seen=f"{request.method}: {text}", Allow=method)
            response = answer(request, *_as_caller(request, site, use, ticket, scope))
        except (NotFound, LimitExceeded, Refused, ToolError, CallRefused) as error:
            response = _refuse(error if isinstance(error, Refused) else _as_refused(error), use)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return view


def _as_refused(error: Exception) -> Refused:
    if isinstance(error, LimitExceeded):
        headers = {"Retry-After": str(error.retry_after)}
        return Refused(429, "Too many calls.", f"Raise {error.setting} if clients have to send more.", **headers)
    if isinstance(error, CallRefused):
        return Refused(403, error.message, SWITCHED_OFF)
    if isinstance(error, ToolError):
        # The database took too long, or was asked to do too much.
        return Refused(503, error.message, "STATEMENT_TIMEOUT and MAX_QUERY_COST bound what a read costs.")
    return _gone(TAKEN_AWAY)


def _gone(reason: Reason) -> Refused:
    return Refused(404, NOTHING, reason.remedy, seen=reason.seen)


def _refuse(refused: Refused, use: str) -> HttpResponse:
    # The ticket itself would let whoever reads the log in.
    report(refused.status, f"a link to {use}: {refused.seen}", refused.remedy)
    return said(refused.status, refused.text, **refused.headers)


def said(status: int, text: str, **headers: str) -> HttpResponse:
    """Return a line of text."""
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


def _as_caller(
    original: HttpRequest, site: MCPSite, use: str, text: str, scope: str
) -> tuple[MCPRequest, tuple[str, ...]]:
    """Return the user's request, counted as one of their calls, and what the ticket is about.

    Raises:
        Refused: the ticket is not good, or no more.
        LimitExceeded: the user has to wait.
        CallRefused: the user, or what the ticket is for, is switched off.
    """
    ticket, scopes = read_ticket(site.name, use, text), expand([scope])
    if ticket is None:
        is_old = read_ticket(site.name, use, text, max_age=LONG_AGO) is not None
        raise _gone(TOO_OLD if is_old else NOT_MADE_HERE)
    user = _user_of(ticket)
    if user is None:
        raise _gone(NO_USER)
    if not _is_live(ticket, scopes):
        raise _gone(TOKEN_ENDED)
    facts = scope_from_wsgi(original)
    request = build_request(facts, headers_of(facts), site)
    request.META.pop("HTTP_AUTHORIZATION", None)
    request.__dict__.update(middleware_attributes(original))
    request.user = user
    request.mcp.scopes = scopes
    request.mcp.facts = facts_of(ticket.checksum) if ticket.checksum else {}
    if not is_current(user, request.mcp.facts):
        raise _gone(TOKEN_ENDED)
    restore(request)
    request.mcp.resource = resource_url(request, original.path_info.rpartition(f"/{use}/")[0])
    count_call(caller_of(request))
    _look_at_switches(request, scope)
    return request, ticket.about


def _look_at_switches(request: MCPRequest, scope: str) -> None:
    request.mcp.off = off = switches.current()
    if off is None:
        return
    describe_caller(request, request.mcp.record)
    refuse_if_off(request)
    if scope == WRITE and off.writes is not None:
        raise off.writes.refusal()


def _user_of(ticket: Ticket) -> Any:
    if ticket.owner is None:
        return None if settings.AUTHENTICATION_CLASSES else AnonymousUser()
    user = get_user_model()._default_manager.filter(pk=ticket.owner).first()
    return user if user is not None and user.is_active else None


def _is_live(ticket: Ticket, scopes: frozenset[str]) -> bool:
    """Return whether the token that the ticket was asked for with is still good."""
    asked = Token(scopes, "", timezone.now() + timedelta(seconds=MAX_AGE), ticket.checksum)
    return not ticket.checksum or bool(Token.still_good([asked]))


CHUNK: Final = 64 * 1024
SPOOL: Final = 1024 * 1024
NOT_KEPT: Final = "The server could not keep the file. You can send it again to the same URL."
TAKEN: Final = "A file was sent here before. Ask for another URL."
ASK_ANEW: Final = "A URL takes one file; the client calls create_upload for each."
CUT: Final = "The client or a proxy ended the connection; a proxy may bound bodies or their time."
BREAKS_HTTP: Final = "The client or a proxy breaks HTTP."


def file_urls(site: MCPSite) -> list[URLPattern]:
    """Return the patterns of the site's URLs of files, relative to where its endpoint is mounted."""
    take, give = ticketed(site, UPLOADS, "PUT", WRITE, _take), ticketed(site, DOWNLOADS, "GET", READ, _give)
    return [
        re_path(rf"^(?:/)?{UPLOADS}/(?P<ticket>{TICKET})$", take, name="upload"),
        re_path(rf"^(?:/)?{DOWNLOADS}/(?P<ticket>{TICKET})$", give, name="file"),
    ]


def _take(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponseBase:
    """Keep the body under the name in the ticket, once."""
    storage, (name,) = upload_storage(), about
    if storage is None or not CreateUpload().has_permission(request):
        raise NotFound
    announced = _announced(original)
    if was_sent(name) or storage.exists(name):
        raise Refused(409, TAKEN, ASK_ANEW)
    _count(request)
    try:
        size, kept = _keep(original, announced, storage, name)
    except Refused:
        raise
    except Exception as error:
        # A full disk, or whatever a storage says: what it has of the file must not spend the URL.
        identifier = log_failure("An upload", error)
        with contextlib.suppress(Exception):
            storage.delete(name)
        text = f"{NOT_KEPT} (error {identifier})"
        raise Refused(507, text, "The error of that number, logged before this, says why the storage failed.") from None
    if kept != name:
        # Another one was faster.
        storage.delete(kept)
        raise Refused(409, TAKEN, ASK_ANEW)
    remember_sent(name)
    return said(201, f"Received {size} bytes.")


def _count(request: MCPRequest) -> None:
    try:
        wait = hit("uploads", caller_of(request), settings.UPLOAD_RATE)
    except Exception as error:
        text = "The server cannot take files at the moment. Send it again in some seconds."
        seen = f"the cache does not count them: {type(error).__name__}"
        raise Refused(503, text, "Without the cache no file is taken.", seen=seen) from None
    if wait is not None:
        raise LimitExceeded(wait, "UPLOAD_RATE")


def _keep(original: HttpRequest, announced: int | None, storage: Storage, name: str) -> tuple[int, str]:
    """Keep the body; return its length and the name that it got."""
    with tempfile.SpooledTemporaryFile(SPOOL) as body:
        try:
            size = _receive(original, body)
        except UnreadablePostError:
            raise Refused(400, "The body did not arrive.", CUT) from None
        if announced is not None and announced != size:
            raise Refused(400, "The body is shorter than announced.", CUT)
        body.seek(0)
        return size, storage.save(name, File(body, name))


def _announced(original: HttpRequest) -> int | None:
    """Return the length of the body where it is announced."""
    try:
        length = body_length(original.META.get("CONTENT_LENGTH") or None)
    except ValueError:
        raise Refused(400, "Content-Length is not a number.", BREAKS_HTTP) from None
    if length is None and not isinstance(original, ASGIRequest):
        # WSGI has no end of a body but its length.
        raise Refused(
            411,
            "Content-Length is missing.",
            "Under WSGI a client must announce the length; an ASGI server needs none.",
        )
    if length is not None and length > settings.MAX_UPLOAD_BYTES:
        raise _too_large()
    return length


def _receive(original: HttpRequest, body: Any) -> int:
    """Copy the body of the request, within its bound, and return its length."""
    size = 0
    while data := original.read(CHUNK):
        size += len(data)
        if size > settings.MAX_UPLOAD_BYTES:
            raise _too_large()
        body.write(data)
    return size


def _too_large() -> Refused:
    text = f"The file has more than {settings.MAX_UPLOAD_BYTES} bytes."
    return Refused(413, text, "Raise MAX_UPLOAD_BYTES if clients have to send more.")


def _give(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponseBase:
    """Send the file that the ticket names, as one to save."""
    if not settings.DOWNLOAD_LINKS:
        raise NotFound
    with read_limits():
        file = find_file(request, Address(about[0], pk=about[1], field_name=about[2]))
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
