"""Translate an action's HTTP response for a caller without a browser: a file, a question, a redirect, messages.

Never passed on: HTML with its tokens, cookies, and the addresses of pages. What a redirect leads to and the caller may
not see is told like any other page.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from asgiref.sync import async_to_sync
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.forms import BaseForm
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import Resolver404, get_script_prefix, resolve

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..context.signing import MAX_AGE
from ..exceptions import NotFound, ToolError
from ..forms.html import HtmlForm, read_forms
from ..orm.access import get_row, visible_exposures
from ..orm.columns import render
from ..orm.relations import label_of
from ..orm.uris import row_uri
from ..protocol.content import Content, EmbeddedResource, ResourceLink
from .attachments import SCHEME, keep

LIST: Final = "_changelist"
# The views of the admin itself, which have tools of their own.
DJANGOS: Final = frozenset({"_add", "_change", "_changelist", "_delete", "_history"})
ELSEWHERE: Final = "The action redirected to another admin page; what that page does was not done."


@dataclass(frozen=True, slots=True)
class Destination:
    """A row (``model``, ``pk``, ``label``, ``uri``), or a ``note`` on what else it is; "" for the way back."""

    note: str = ""
    record: Mapping[str, Any] | None = None


def own_view(request: MCPRequest, path: str) -> Callable[..., HttpResponseBase] | None:
    """Return the view at a path if it is one that the model's admin has beside Django's, None for any other.

    ``request`` is the one that the action got: what it was posted to is the list of the model.
    """
    here = request.resolver_match
    if here is None or not (here.url_name or "").endswith(LIST):
        return None
    try:
        match = resolve("/" + path.removeprefix(get_script_prefix()))
    except Resolver404:
        return None
    model, name = (here.url_name or "").removesuffix(LIST), match.url_name or ""
    own = match.namespaces == here.namespaces and name.startswith(f"{model}_")
    if not own or match.args or name.removeprefix(model) in DJANGOS:
        return None
    return partial(match.func, **match.kwargs)


def destination(request: MCPRequest, location: str) -> Destination:
    """Return where a redirect leads. ``request`` is the one that the action got."""
    target = urlsplit(urljoin(request.path, location))
    if target.netloc and target.netloc not in (request.META.get("HTTP_HOST"), urlsplit(settings.BASE_URL or "").netloc):
        return Destination(ELSEWHERE)
    if target.path == request.path:
        return Destination()
    try:
        match = resolve("/" + target.path.removeprefix(get_script_prefix()))
    except Resolver404:
        return Destination(ELSEWHERE)
    if "admin" not in match.app_names:
        return Destination(ELSEWHERE)
    for exposure in visible_exposures(request):
        page = f"{exposure.opts.app_label}_{exposure.opts.model_name}_"
        if match.url_name == f"{page}change":
            return _row(request, exposure, unquote(match.kwargs["object_id"]))
        if match.url_name == f"{page}changelist":
            return Destination(f"The action leads on to a list of {exposure.label}.")
    return Destination(ELSEWHERE)


def _row(request: MCPRequest, exposure: Exposure, pk: str) -> Destination:
    try:
        row = get_row(request, exposure, pk)
    except NotFound:
        return Destination(ELSEWHERE)
    uri, label = row_uri(exposure, row.pk), label_of(exposure, row)
    return Destination(record={"model": exposure.label, "pk": render(row.pk), "label": label, "uri": uri})


# Characters of a text, or bytes of another file, that stand in the result themselves.
SHOWN: Final = 2_000
NOTE: Final = "Read the uri as a resource, or with get_record as pk."
MAX_PAGE_TEXT: Final = 1_000
TEXT_TYPES: Final = re.compile(r"text/|application/([a-z.-]+\+)?(json|xml|yaml|csv|javascript|x-ndjson)")
UNSAFE_NAME: Final = re.compile(r"[^\w. -]+")


@dataclass(frozen=True, slots=True)
class File:
    """A download: ``body`` is text or bytes."""

    name: str
    mime_type: str
    body: str | bytes

    def result(self, request: MCPRequest, about: str) -> tuple[dict[str, Any], list[Content]]:
        """Return what a structured result says of the file, and a block where that is not all.

        The contents are in the result once: a short text in what is said; what is long is kept, and the block is a link
        to it. ``about`` is what made the file (:func:`~mcp_django.actions.attachments.keep`).
        """
        raw = self.body.encode() if isinstance(self.body, str) else self.body
        said: dict[str, Any] = {"name": self.name, "mime_type": self.mime_type, "bytes": len(raw)}
        is_long = len(self.body) > SHOWN
        if isinstance(self.body, str) and not is_long:
            return {**said, "text": self.body}, []
        uri = keep(request, about, self.name, self.mime_type, self.body) if is_long else ""
        if uri:
            return {**said, "uri": uri, "expires_in": MAX_AGE, "note": NOTE}, [
                ResourceLink(uri, self.name, mime_type=self.mime_type)
            ]
        return said, [EmbeddedResource(f"{SCHEME}{about}/{self.name}", self.body, self.mime_type)]


@dataclass(frozen=True, slots=True)
class Page:
    """An intermediate page, which asks before anything is done.

    ``target`` is the path of the view that it is posted to, "" where that is the admin's list, and so the action again.
    """

    html: HtmlForm
    form: BaseForm | None = None
    title: str = ""
    target: str = ""

    @property
    def message(self) -> str:
        """What the page says, without markup."""
        text = " ".join(part for part in [f"{self.title}:" if self.title else "", *self.html.text] if part)
        return text if len(text) <= MAX_PAGE_TEXT else f"{text[:MAX_PAGE_TEXT]}…"

    @property
    def selected(self) -> list[str] | None:
        """The primary keys that the page posts back, None when it names none."""
        return [value for name, value in self.html.entries if name == ACTION_CHECKBOX_NAME] or None


@dataclass(frozen=True, slots=True)
class Answer:
    """What remains of a response: at most one of a page, a file, a text and a row; ``note`` says what was not done."""

    page: Page | None = None
    file: File | None = None
    text: str = ""
    note: str = ""
    record: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Body:
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > settings.MAX_FILE_BYTES:
            raise ToolError(
                f"The result is larger than {settings.MAX_FILE_BYTES} bytes. Nothing was changed. Pick fewer rows."
            )
        self.parts.append(part)


def read_response(request: MCPRequest, response: HttpResponseBase) -> Answer:
    """Return what an action's response means to a caller. ``request`` is the one that the action got.

    Raises:
        ToolError: it is an error, too large, or a page that goes on elsewhere; nothing may stay changed.
        NotFound: the action answered 404.
    """
    try:
        if 300 <= response.status_code < 400:
            return _read_redirect(request, response)
        _check_status(response.status_code)
        return _read_body(request, response)
    finally:
        # Not response.close(), which would also end the request for Django.
        for closer in response._resource_closers:  # type: ignore[attr-defined]
            closer()


def _check_status(status: int) -> None:
    if status == 404:
        raise NotFound
    if status in (401, 403):
        raise PermissionDenied
    if status >= 400:
        raise ToolError(f"The action refused with HTTP status {status}. Nothing was changed.")


def _read_redirect(request: MCPRequest, response: HttpResponseBase) -> Answer:
    target = destination(request, response.headers.get("Location", ""))
    return Answer(note=target.note, record=target.record)


def _read_body(request: MCPRequest, response: HttpResponseBase) -> Answer:
    if isinstance(response, HttpResponse) and hasattr(response, "render"):
        response.render()
    mime_type, disposition = _mime_type(response), response.headers.get("Content-Disposition", "")
    body = b"".join(_bounded(response))
    if mime_type in ("text/html", "application/xhtml+xml") and not disposition.startswith("attachment"):
        return _read_page(request, response, body.decode(response.charset, "replace"))
    if not body and not disposition:
        return Answer()
    return Answer(file=File(_file_name(disposition), mime_type, _decoded(response, mime_type, body)))


def _bounded(response: HttpResponseBase) -> list[bytes]:
    body = _Body()
    if isinstance(response, StreamingHttpResponse) and response.is_async:
        async_to_sync(_read_async)(response, body)
    else:
        for part in _parts(response):
            body.add(part)
    return body.parts


def _parts(response: HttpResponseBase) -> Iterator[bytes]:
    if isinstance(response, StreamingHttpResponse):
        yield from response.streaming_content  # type: ignore[misc]
    elif isinstance(response, HttpResponse):
        yield response.content


async def _read_async(response: StreamingHttpResponse, body: _Body) -> None:
    async for part in response.streaming_content:  # type: ignore[union-attr]
        body.add(part)


def _mime_type(response: HttpResponseBase) -> str:
    return response.headers.get("Content-Type", "application/octet-stream").split(";")[0].strip().lower()


def _decoded(response: HttpResponseBase, mime_type: str, body: bytes) -> str | bytes:
    if TEXT_TYPES.match(mime_type):
        try:
            return body.decode(response.charset)
        except (UnicodeDecodeError, LookupError):
            return body
    return body


def _file_name(disposition: str) -> str:
    header = Message()
    header["Content-Disposition"] = disposition or "attachment"
    name = (header.get_filename() or "result").replace("\\", "/").rsplit("/", 1)[-1]
    return UNSAFE_NAME.sub("_", name)[:100].lstrip(".") or "result"


def _read_page(request: MCPRequest, response: HttpResponseBase, html: str) -> Answer:
    context = getattr(response, "context_data", None) or {}
    form = next((value for value in context.values() if isinstance(value, BaseForm)), None)
    title = str(context.get("title") or "")
    every = read_forms(html)
    forms = [
        (urlsplit(urljoin(request.path, found.action)).path, found) for found in every[1:] if found.method == "post"
    ]
    asking = [(path, found) for path, found in forms if _asks(found, form)]
    for path, found in asking:
        if path == request.path:
            return Answer(page=Page(found, form, title))
    for path, found in forms:
        if own_view(request, path) is not None:
            return Answer(page=Page(found, form, title, target=path))
    # A page may leave its form out, to say why there is nothing to ask.
    if asking or (form is not None and any(_asks(found, form) for found in every)):
        raise ToolError("This action goes on in a page of its own. Nothing was changed. Run it in the admin.")
    text = " ".join(part for found in every for part in found.text)
    return Answer(text=text[: request.mcp.result_chars])


def _asks(html: HtmlForm, form: BaseForm | None) -> bool:
    """Return whether the form belongs to the action, and not to the frame around the page."""
    names = {name for name, _ in html.entries} | html.controls.keys()
    wanted = {"action", ACTION_CHECKBOX_NAME, "post"}
    if form is not None:
        wanted |= {form.add_prefix(name) for name in form.fields}
    return bool(names & wanted)
