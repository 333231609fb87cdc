"""Files by URL: what ``create_upload`` takes, and what links to files of records give."""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.files.base import File
from django.core.files.storage import Storage
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponseBase, UnreadablePostError
from django.urls import URLPattern, re_path

from ...conf import settings
from ...context.request import MCPRequest
from ...context.tickets import TICKET
from ...exceptions import NotFound
from ...forms.uploads import remember_sent, upload_storage, was_sent
from ...oauth.scopes import READ, WRITE
from ...orm.query_limits import read_limits
from ...orm.uris import DOWNLOADS, Address
from ...protocol.http import body_length
from ...resources.files import file_type, find_file, open_file
from ...runtime.throttling import caller_of, hit
from ...server.methods.base import log_failure
from ...sites import MCPSite
from ...tools.uploads import UPLOADS, CreateUpload
from .limits import LimitExceeded
from .ticketed import Refused, said, ticketed

__all__ = ["file_urls"]


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
