"""Files by URL: what ``create_upload`` takes, and what links to files of records give."""

import os
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.files.base import File
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponseBase, UnreadablePostError
from django.urls import URLPattern, re_path

from ..addresses import Address
from ..conf import settings
from ..context import MCPRequest
from ..costs import read_limits
from ..exceptions import NotFound
from ..oauth.scopes import READ, WRITE
from ..protocol.http import body_length
from ..rates import caller_of, hit
from ..resources.files import DOWNLOADS, file_type, find_file, open_file
from ..sites import MCPSite
from ..tickets import TICKET
from ..tools.uploads import UPLOADS, CreateUpload
from ..uploads import upload_storage
from .limits import LimitExceeded
from .ticketed import Refused, said, ticketed

__all__ = ["file_urls"]

CHUNK: Final = 64 * 1024
SPOOL: Final = 1024 * 1024
TAKEN: Final = "A file was sent here before. Ask for another URL."


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
    if storage.exists(name):
        raise Refused(409, TAKEN)
    if (wait := hit("uploads", caller_of(request), settings.UPLOAD_RATE)) is not None:
        raise LimitExceeded(wait)
    with tempfile.SpooledTemporaryFile(SPOOL) as body:
        try:
            size = _receive(original, body)
        except UnreadablePostError:
            raise Refused(400, "The body did not arrive.") from None
        if announced is not None and announced != size:
            raise Refused(400, "The body is shorter than announced.")
        body.seek(0)
        kept = storage.save(name, File(body, name))
    if kept != name:
        # Another one was faster.
        storage.delete(kept)
        raise Refused(409, TAKEN)
    return said(201, f"Received {size} bytes.")


def _announced(original: HttpRequest) -> int | None:
    """Return the length of the body where it is announced."""
    try:
        length = body_length(original.META.get("CONTENT_LENGTH") or None)
    except ValueError:
        raise Refused(400, "Content-Length is not a number.") from None
    if length is None and not isinstance(original, ASGIRequest):
        # WSGI has no end of a body but its length.
        raise Refused(411, "Content-Length is missing.")
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
    return Refused(413, f"The file has more than {settings.MAX_UPLOAD_BYTES} bytes.")


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
